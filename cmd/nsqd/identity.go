package main

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/peertls"
	"github.com/sirupsen/logrus"
)

// loadPeerIdentity reads this broker's certificate for other brokers, and refuses one that they
// would refuse. identity is nil without TLS.
func loadPeerIdentity(o config.Options, log logrus.FieldLogger) (identity *peertls.Identity, names *peertls.Names, err error) {
	if names, err = peertls.NewNames(o.RPCTLSName, knownBrokers(o)...); err != nil {
		return nil, nil, fmt.Errorf("--rpc-tls-name: %w", err)
	}
	identity, err = peertls.Load(peertls.Files{Cert: o.RPCTLSCert, Key: o.RPCTLSKey, CA: o.RPCTLSCA}, names, log)
	if err != nil || identity == nil {
		return nil, names, err
	}
	if err := identity.Check(identity.Leaf(), o.NodeName); err != nil {
		return nil, nil, fmt.Errorf("--rpc-tls-cert=%s: %w: other brokers refuse it; make it with nsqctl cert broker, or issue it with subjectAltName=DNS:%s "+
			"beside the addresses that others dial, and with extendedKeyUsage=serverAuth,clientAuth (or set --rpc-tls-name on all brokers)",
			o.RPCTLSCert, err, names.Of(o.NodeName))
	}
	return identity, names, nil
}

// knownBrokers are the brokers that may reach the embedded etcd, beside its members.
func knownBrokers(o config.Options) []string {
	known := append([]string{o.NodeName}, o.RPCTLSAllow...)
	for member := range strings.SplitSeq(o.EtcdInitialCluster, ",") {
		if name, _, ok := strings.Cut(strings.TrimSpace(member), "="); ok {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// peerTLS returns an untyped nil without TLS.
func (p *process) peerTLS() rpc.Identity {
	if p.identity == nil {
		return nil
	}
	return p.identity
}

// configs returns the configuration of each next connection; nil without TLS.
func configs(i *peertls.Identity) func() *tls.Config {
	if i == nil {
		return nil
	}
	return i.Config
}

// externalTLS reads the certificate for the external etcd.
func externalTLS(o config.Options, log logrus.FieldLogger) (func() *tls.Config, error) {
	i, err := peertls.Load(peertls.Files{Cert: o.EtcdTLSCert, Key: o.EtcdTLSKey, CA: o.EtcdTLSCA}, nil, log)
	return configs(i), err
}

// countPeers shows the connections at the ports of the embedded etcd as metrics.
func (p *process) countPeers() {
	for i, port := range []string{"client", "peer"} {
		counts := func() peertls.Counts {
			clients, peers := p.etcd.Connections()
			return []peertls.Counts{clients, peers}[i]
		}
		p.metrics.Gauge("etcd_"+port+"_connections", func() float64 {
			return float64(counts().Admitted)
		})
		p.metrics.Gauge("etcd_"+port+"_handshakes", func() float64 {
			return float64(counts().Waiting)
		})
		p.metrics.Counter("etcd_"+port+"_refused_connections_total", func() float64 {
			c := counts()
			return float64(c.Displaced + c.Refused)
		})
	}
}
