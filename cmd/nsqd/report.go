package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/observe/statsd"
)

// report starts the goroutines that report the broker's state: to the console's history, to external nsqlookupds
// whenever leaderships move, and to statsd.
func (p *process) report() {
	ctx, cancel := context.WithCancel(context.Background())
	p.endReports = cancel
	p.measure()
	p.reporters.Go(func() { p.clients.console.Keep(ctx) })
	p.reporters.Go(func() {
		for {
			select {
			case <-p.broker.Changed():
				p.lookup.Notify()
			case <-ctx.Done():
				return
			}
		}
	})
	if p.o.StatsdAddress == "" {
		return
	}
	host := net.JoinHostPort(p.node.BroadcastAddress, fmt.Sprint(p.node.HTTPPort))
	pusher := statsd.New(p.o.Statsd, host, p.broker.Inspector, metrics.ReadMemory, p.log)
	p.reporters.Go(func() { pusher.Run(ctx) })
}

// liveConfig implements /config/:opt.
type liveConfig struct {
	o      config.Options
	log    *logrus.Logger
	lookup *lookup.Registrar
}

// Get returns an option by its name in the file, in NSQ's form: levels, policies and versions are numbers.
func (c *liveConfig) Get(name string) (any, bool) {
	switch name {
	case "log_level":
		return levelNumber(c.log.GetLevel()), true
	case "nsqlookupd_tcp_addresses":
		return c.lookup.Addresses(), true
	case "tls_required":
		return map[config.TLSRequired]int{config.TLSRequiredExceptHTTP: 1, config.TLSRequiredAll: 2}[c.o.TLSRequired], true
	case "tls_min_version":
		return listen.TLSVersion(c.o.TLSMinVersion), true
	}
	return c.o.ByKey(name)
}

func (c *liveConfig) SetLogLevel(name string) error {
	level, err := parseLevel(name)
	if err == nil {
		c.log.SetLevel(level)
	}
	return err
}

func (c *liveConfig) SetLookupdAddresses(addresses []string) error {
	if err := lookup.Validate(addresses); err != nil {
		return err
	}
	c.lookup.SetAddresses(addresses)
	return nil
}

// measure adds the metrics of the parts around the broker, which are read at each scrape.
func (p *process) measure() {
	p.metrics.Source([]string{"connections", "clients"}, func(emit metrics.Emit) {
		tcp, http := p.clients.sockets.Connections()
		emit("connections", float64(tcp), metrics.PortTCP)
		emit("connections", float64(http), metrics.PortHTTP)
		consumers, producers, idle := p.clients.tcp.Clients()
		emit("clients", float64(consumers), "consumer")
		emit("clients", float64(p.clients.consumers.Count()), "http_consumer")
		emit("clients", float64(producers), "producer")
		emit("clients", float64(idle), "idle")
	})
	p.metrics.Source([]string{"auth_service_unanswered_seconds"}, func(emit metrics.Emit) {
		emit("auth_service_unanswered_seconds", p.clients.guard.Unanswered().Seconds())
	})
	p.metrics.Source([]string{"certificate_expiry_timestamp_seconds"}, func(emit metrics.Emit) {
		ends, faults := certificates(p.o)
		for use := range faults {
			emit("certificate_expiry_timestamp_seconds", 0, use)
		}
		for use, end := range ends {
			if faults[use] == "" {
				emit("certificate_expiry_timestamp_seconds", float64(end.Unix()), use)
			}
		}
	})
	build := api.ReadBuild()
	p.metrics.Source([]string{"build_info"}, func(emit metrics.Emit) {
		emit("build_info", 1, build.Version, build.Commit, strconv.Itoa(metadata.Level), api.Version, p.o.NodeName)
	})
	if p.meta.etcd == nil {
		return
	}
	p.metrics.Source([]string{"etcd_leader", "etcd_has_leader", "etcd_database_bytes", "etcd_database_in_use_bytes", "etcd_quota_bytes"}, func(emit metrics.Emit) {
		s := p.meta.etcd.Status()
		emit("etcd_leader", one(s.Leads))
		emit("etcd_has_leader", one(s.HasLeader))
		emit("etcd_database_bytes", float64(s.DatabaseBytes))
		emit("etcd_database_in_use_bytes", float64(s.InUseBytes))
		emit("etcd_quota_bytes", float64(s.QuotaBytes))
	})
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
