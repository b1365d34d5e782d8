package engine

import (
	"context"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// TransferLeadership starts a planned change of leader of a partition led here: rpc.ErrNotLeader if it is not.
func (e *Engine) TransferLeadership(id ident.Partition, to ident.Node) error {
	p, ok := e.Partition(id)
	if !ok || !p.Leading() {
		return rpc.ErrNotLeader
	}
	p.TransferLeadership(to)
	return nil
}

// TransferLeadership starts the change of leader: the channels stop, and their changes are replicated first (EL-7).
func (p *Partition) TransferLeadership(to ident.Node) { p.Post(replica.TransferLeadership{To: to}) }

// Settle makes the channels' last changes durable on the whole in-sync set: a planned stop must not forget a requeue
// of the last 10 ms. If ctx ends first, messages are redelivered. dead: a broker is known to be dead.
func (e *Engine) Settle(ctx context.Context, dead func(ident.Node) bool) {
	for _, p := range e.Partitions() {
		if p.Leading() {
			p.queue.Flush()
		}
	}
	for _, l := range e.loops {
		select {
		case <-l.await(event{kind: eventBarrier}):
		case <-ctx.Done():
		}
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for !e.settled(dead) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// settled reports whether each change of a channel led here is on all in-sync replicas, unless one of them has died.
func (e *Engine) settled(dead func(ident.Node) bool) bool {
	for _, p := range e.Partitions() {
		v := p.View()
		if v.Role != replica.Leader || v.StateCommitted >= v.StateIssued {
			continue
		}
		if !slices.ContainsFunc(v.ISR, func(m ident.Member) bool { return dead(m.Node) }) {
			return false
		}
	}
	return true
}
