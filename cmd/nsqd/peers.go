package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

type peers struct {
	identity  *peertls.Identity // nil without TLS
	names     *peertls.Names
	admission *admission.Registry // of brokers that may join; the ports of the embedded etcd ask it
	port      *net.TCPListener
}

func (r *peers) load(o config.Options, log logrus.FieldLogger) (err error) {
	if r.identity, r.names, err = loadPeerIdentity(o, log); err != nil {
		return err
	}
	r.admission = admission.New(admission.Options{Keys: metadata.Keys{Cluster: o.ClusterName}, NotNeeded: r.admitsAll(o), Log: log})
	r.names.SetInvited(r.admission.Invited)
	return nil
}

// loadPeerIdentity reads this broker's certificate for other brokers, and refuses one that they would refuse. identity
// is nil without TLS.
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

// knownBrokers are the brokers that may reach the embedded etcd, in addition to its members.
func knownBrokers(o config.Options) []string {
	known := slices.Concat([]string{o.NodeName}, o.RPCTLSAllow, o.Members())
	slices.Sort(known)
	return slices.Compact(known)
}

// admitsAll says why no broker needs an invitation; "" if brokers need one.
func (r *peers) admitsAll(o config.Options) string {
	switch {
	case !o.EmbedsEtcd():
		return "no invitation is needed: this cluster has an external etcd (--etcd-endpoints), which admits brokers itself"
	case r.identity == nil:
		return "no invitation is needed: brokers without TLS (--insecure) admit every broker that reaches their ports"
	case r.names.AdmitsByPattern():
		return "no invitation is needed: every broker with a certificate for " + o.RPCTLSName + " is admitted (--rpc-tls-name)"
	}
	return ""
}

// tls returns an untyped nil without TLS.
func (r *peers) tls() rpc.Identity {
	if r.identity == nil {
		return nil
	}
	return r.identity
}

// useInvitation removes this broker's invitation, now that it is a member. An invitation that stays expires.
func (p *process) useInvitation(ctx context.Context) {
	if p.peers.admitsAll(p.o) != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	if err := admission.Joined(ctx, p.meta.store, metadata.Keys{Cluster: p.o.ClusterName}, ident.Node(p.o.NodeName)); err != nil {
		p.log.WithError(err).Warn("cannot remove this broker's invitation, which ends by itself; nsqctl cluster invite NODE-NAME --withdraw ends it now")
	}
}

// externalTLS reads the certificate for the external etcd. It returns the configuration of each next connection; nil
// without TLS.
func externalTLS(o config.Options, log logrus.FieldLogger) (func() *tls.Config, error) {
	i, err := peertls.Load(peertls.Files{Cert: o.EtcdTLSCert, Key: o.EtcdTLSKey, CA: o.EtcdTLSCA}, nil, log)
	if i == nil {
		return nil, err
	}
	return i.Config, err
}

// reachable returns the address at which others reach a listener: the advertised host, if it listens on all interfaces.
func reachable(address, host string) string {
	h, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(h); h != "" && (ip == nil || !ip.IsUnspecified()) {
		return address
	}
	return net.JoinHostPort(host, port)
}
