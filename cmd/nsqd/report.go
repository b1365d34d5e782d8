package main

import (
	"context"
	"fmt"
	"net"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/lookup"
	"github.com/lockstepmq/lockstep/internal/observe/statsd"
	"github.com/sirupsen/logrus"
)

// report starts the goroutines that report the broker's state: to external nsqlookupds
// whenever leaderships move, and to statsd. They end with quiet.
func (p *process) report() {
	ctx, quiet := context.WithCancel(context.Background())
	p.quiet = quiet
	p.measure()
	p.reports.Go(func() { p.console.Keep(ctx) })
	p.reports.Go(func() {
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
	pusher := statsd.New(p.statsdOptions(), p.broker.Stats, heap)
	p.reports.Go(func() { pusher.Run(ctx) })
}

func (p *process) statsdOptions() statsd.Options {
	return statsd.Options{
		Address: p.o.StatsdAddress, Prefix: p.o.StatsdPrefix, Interval: p.o.StatsdInterval,
		Host:       net.JoinHostPort(p.node.BroadcastAddress, fmt.Sprint(p.node.HTTPPort)),
		PacketSize: p.o.StatsdUDPPacketSize, MemStats: p.o.StatsdMemStats,
		ExcludeEphemeral: p.o.StatsdExcludeEphemeral, Log: p.log,
	}
}

// heap returns the figures of the process's memory with the names of stock nsqd.
func heap() ([]statsd.Gauge, uint64) {
	m := httpapi.ReadMemory()
	return []statsd.Gauge{
		{Name: "heap_objects", Value: m.HeapObjects}, {Name: "heap_idle_bytes", Value: m.HeapIdleBytes},
		{Name: "heap_in_use_bytes", Value: m.HeapInUseBytes}, {Name: "heap_released_bytes", Value: m.HeapReleasedBytes},
		{Name: "gc_pause_usec_100", Value: m.GCPauseUsec100}, {Name: "gc_pause_usec_99", Value: m.GCPauseUsec99},
		{Name: "gc_pause_usec_95", Value: m.GCPauseUsec95}, {Name: "next_gc_bytes", Value: m.NextGCBytes},
	}, uint64(m.GCTotalRuns)
}

// liveConfig implements /config/:opt.
type liveConfig struct {
	o      config.Options
	log    *logrus.Logger
	lookup *lookup.Registrar
}

// Get returns an option by its name in the file, in NSQ's form: levels, policies and versions
// are numbers.
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
