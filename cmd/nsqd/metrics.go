package main

import (
	"strconv"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

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
