package main

import (
	"context"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/internal/etcdserver"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// members are the embedded etcd's, which bear the names of their brokers.
type members struct{ etcd *etcdserver.Server }

// Remove takes a broker's member out for good.
func (m members) Remove(ctx context.Context, n ident.Node) error {
	return m.etcd.RemoveMember(ctx, string(n))
}

// Died tells the member here that another one's process is gone.
func (m members) Died(ctx context.Context, n ident.Node) error {
	return m.etcd.Died(ctx, string(n))
}

// members is nil with an external etcd: who brings one keeps it.
func (p *process) members() coordinator.Members {
	if p.etcd == nil {
		return nil
	}
	return members{p.etcd}
}
