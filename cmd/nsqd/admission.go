package main

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// openAdmission makes the register of brokers that may join. The ports of the embedded etcd ask it.
func (p *process) openAdmission() {
	p.admission = admission.New(admission.Options{Keys: metadata.Keys{Cluster: p.o.ClusterName}, NotNeeded: p.admitsAll(), Log: p.log})
	p.names.SetInvited(p.admission.Invited)
}

// admitsAll says why no broker needs an invitation; "" if brokers need one.
func (p *process) admitsAll() string {
	switch {
	case !p.o.EmbedsEtcd():
		return "no invitation is needed: this cluster has an external etcd (--etcd-endpoints), which admits brokers itself"
	case p.identity == nil:
		return "no invitation is needed: brokers without TLS (--insecure) admit every broker that reaches their ports"
	case p.names.AdmitsByPattern():
		return "no invitation is needed: every broker with a certificate for " + p.o.RPCTLSName + " is admitted (--rpc-tls-name)"
	}
	return ""
}

// watchAdmission follows the invitations until the process stops.
func (p *process) watchAdmission() {
	ctx, cancel := context.WithCancel(context.Background())
	p.watches.Go(func() { // ends with the process
		<-p.quit
		cancel()
	})
	p.watches.Go(func() { p.admission.Watch(ctx, p.meta) })
}

// joined uses up this broker's invitation: it is a member now. An invitation that stays ends by itself.
func (p *process) joined(ctx context.Context) {
	if p.admitsAll() != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askMetaTimeout)
	defer cancel()
	if err := admission.Joined(ctx, p.meta, metadata.Keys{Cluster: p.o.ClusterName}, ident.Node(p.o.NodeName)); err != nil {
		p.log.WithError(err).Warn("cannot remove this broker's invitation, which ends by itself; nsqctl cluster invite NODE-NAME --withdraw ends it now")
	}
}
