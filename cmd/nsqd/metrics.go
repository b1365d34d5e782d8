package main

import (
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/metrics"
)

// measure adds the metrics of the parts around the broker, which are read at each scrape.
func (p *process) measure() {
	p.metrics.Source([]string{"connections", "clients"}, func(emit metrics.Emit) {
		tcp, http := p.sockets.Connections()
		emit("connections", float64(tcp), metrics.PortTCP)
		emit("connections", float64(http), metrics.PortHTTP)
		consumers, producers, idle := p.tcp.Clients()
		emit("clients", float64(consumers), "consumer")
		if p.consumers != nil {
			emit("clients", float64(p.consumers.Count()), "http_consumer")
		}
		emit("clients", float64(producers), "producer")
		emit("clients", float64(idle), "idle")
	})
	p.metrics.Source([]string{"auth_service_unanswered_seconds"}, func(emit metrics.Emit) {
		emit("auth_service_unanswered_seconds", p.guard.Unanswered().Seconds())
	})
	p.metrics.Source([]string{"certificate_expiry_timestamp_seconds"}, func(emit metrics.Emit) {
		for use, end := range p.certificates() {
			emit("certificate_expiry_timestamp_seconds", float64(end.Unix()), use)
		}
	})
	build := edge.ReadBuild()
	p.metrics.Source([]string{"build_info"}, func(emit metrics.Emit) {
		emit("build_info", 1, build.Version, build.Commit, strconv.Itoa(meta.Level), edge.Version, p.o.NodeName)
	})
	if p.etcd == nil {
		return
	}
	p.metrics.Source([]string{"etcd_leader", "etcd_has_leader", "etcd_database_bytes", "etcd_database_in_use_bytes", "etcd_quota_bytes"}, func(emit metrics.Emit) {
		s := p.etcd.Status()
		emit("etcd_leader", one(s.Leads))
		emit("etcd_has_leader", one(s.HasLeader))
		emit("etcd_database_bytes", float64(s.DatabaseBytes))
		emit("etcd_database_in_use_bytes", float64(s.InUseBytes))
		emit("etcd_quota_bytes", float64(s.QuotaBytes))
	})
}

// certificates are the ends of validity of this broker's certificates, by their use.
func (p *process) certificates() map[string]time.Time {
	ends := map[string]time.Time{}
	for use, file := range map[string]string{"client": p.o.TLSCert, "rpc": p.o.RPCTLSCert} {
		if file == "" {
			continue
		}
		if c, err := readCertificate(file); err == nil {
			ends[use] = c.NotAfter
		}
	}
	return ends
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
