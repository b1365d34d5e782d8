package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
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
		ends, faults := p.certificates()
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

// certificate names the files of a certificate of this broker, and their settings.
type certificate struct{ use, certFile, keyFile, certFlag, keyFlag string }

// certificates lists the ends of validity of this broker's certificates by their use, and the reasons why files could not be
// used now. The broker has read them when it started, and continues with those.
func (p *process) certificates() (ends map[string]time.Time, faults map[string]string) {
	ends, faults = map[string]time.Time{}, map[string]string{}
	for _, c := range []certificate{
		{"client", p.o.TLSCert, p.o.TLSKey, "--tls-cert", "--tls-key"},
		{"rpc", p.o.RPCTLSCert, p.o.RPCTLSKey, "--rpc-tls-cert", "--rpc-tls-key"},
		{"etcd", p.o.EtcdTLSCert, p.o.EtcdTLSKey, "--etcd-tls-cert", "--etcd-tls-key"},
	} {
		if c.certFile == "" {
			continue
		}
		if leaf, err := readCertificate(c.certFile); err == nil {
			ends[c.use] = leaf.NotAfter
		}
		if why := c.fault(); why != "" {
			faults[c.use] = why
		}
	}
	return ends, faults
}

// fault is the reason why the files cannot be used; "" if they can. It has no name of a file: observers read it.
func (c certificate) fault() string {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Sprintf("the file of %s cannot be read", c.certFlag)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Sprintf("its private key is missing: the file of %s cannot be read", c.keyFlag)
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return fmt.Sprintf("the files of %s and %s do not belong together", c.certFlag, c.keyFlag)
	}
	return ""
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
