package main

import (
	"context"
	"fmt"
	"net"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/observe/statsd"
	"github.com/sirupsen/logrus"
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

// SetLogLevel changes the level at run time.
func (c *liveConfig) SetLogLevel(name string) error {
	level, err := parseLevel(name)
	if err == nil {
		c.log.SetLevel(level)
	}
	return err
}

// SetLookupdAddresses changes the nsqlookupds that this broker registers with.
func (c *liveConfig) SetLookupdAddresses(addresses []string) error {
	if err := lookup.Validate(addresses); err != nil {
		return err
	}
	c.lookup.SetAddresses(addresses)
	return nil
}
