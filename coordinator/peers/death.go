package peers

import (
	"context"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/calls"
	"github.com/lockstepmq/lockstep/coordinator/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/sleep"
)

// notifyDeath notifies the metadata's member here of a death, before anything that follows
// from it is written: that would be sent to the dead member, if it led.
func (p *Peers) notifyDeath(ctx context.Context, n ident.Node) {
	if p.o.Members == nil {
		return
	}
	if err := p.o.Members.NotifyDeath(ctx, n); err != nil {
		p.o.Log.WithError(err).WithField("node", n).Info("the metadata finds a new leader by itself")
	}
}

// revoke revokes the lease of a process that is known to be dead, so that nothing waits
// for it to run out. Another incarnation of the node is left alone. A request is lost if
// the dead broker led etcd too: it is sent again until the registration is gone.
func (p *Peers) revoke(ctx context.Context, n ident.Node, inc ident.Incarnation) {
	ctx, cancel := context.WithTimeout(ctx, p.o.RevokeFor)
	defer cancel()
	for ctx.Err() == nil {
		changed := p.o.Catalog.Changed()
		r, ok := p.o.Catalog.LiveNode(n)
		if !ok || r.Incarnation != inc || r.Lease == 0 {
			return
		}
		try, cancel := context.WithTimeout(ctx, txn.Timeout)
		err := p.o.Store.Revoke(try, r.Lease)
		cancel()
		if err != nil {
			p.o.Log.WithError(err).WithField("node", n).Info("cannot revoke the lease of a dead broker yet")
		}
		sleep.Until(ctx, changed, txn.Retry)
	}
}

// Failed takes a broker's report that its store has failed, or hangs (calls.Failed). The
// broker counts as dead until its connection changes: another run connects anew.
func (p *Peers) Failed(n ident.Node) {
	p.o.Log.WithField("node", n).Warn("the store of a broker has failed, or hangs: it counts as dead")
	p.mu.Lock()
	s := peerState{incarnation: p.mu.states[n].incarnation, dead: true, since: time.Now()}
	p.mu.states[n] = s
	p.notifyReplicas(n, s.event(n))
	p.mu.Unlock()
	p.o.Group.Go(func(ctx context.Context) { p.revoke(ctx, n, s.incarnation) })
	p.o.Catalog.Notify()
}

// Renounce asks the others to count this broker as dead until it connects anew, and
// revokes its registration. Either may fail; the others revoke it, too.
func (p *Peers) Renounce(ctx context.Context, lease int64) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for _, n := range p.Others() {
		asked.Go(func() {
			_, _ = calls.Failed.Ask(ctx, p.o.Caller, n, calls.None{}) // else T_isr and the lease decide
		})
	}
	for {
		try, done := context.WithTimeout(ctx, txn.Timeout)
		err := p.o.Store.Revoke(try, lease)
		done()
		if err == nil || !sleep.Until(ctx, nil, txn.Retry) {
			return
		}
	}
}
