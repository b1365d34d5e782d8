package main

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// members are the members of the embedded etcd, which have the names of their brokers.
type members struct{ etcd *etcd.Server }

// Remove removes a broker's member permanently.
func (m members) Remove(ctx context.Context, n ident.Node) error {
	return m.etcd.RemoveMember(ctx, string(n))
}

// NotifyDeath notifies the local member that another one's process is dead.
func (m members) NotifyDeath(ctx context.Context, n ident.Node) error {
	return m.etcd.NotifyDeath(ctx, string(n))
}

// members returns nil with an external etcd, whose members are not Lockstep's to change.
func (p *process) members() metadata.Members {
	if p.etcd == nil {
		return nil
	}
	return members{p.etcd}
}
