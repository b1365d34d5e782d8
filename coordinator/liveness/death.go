package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Times of the check whether other brokers reach a broker.
const (
	witnessEvery   = 20 * time.Millisecond
	witnessTimeout = 100 * time.Millisecond // of one answer
	// noWitnessTimeout is how long the other brokers have to be silent before this broker decides alone. By then it has
	// detected whether all its links refuse connections.
	noWitnessTimeout = 250 * time.Millisecond
)

// confirmDead waits until no other broker can reach incarnation inc of n. The address of n refuses connections here,
// but a link that resets connections looks the same as a dead process. Without asking the others, one broker behind
// such a link would repeatedly revoke the registrations of all other brokers. It returns false if n is connected again,
// or after RevokeFor. If no other broker answers, this broker decides alone, unless a third broker refuses connections
// too: then this broker may be partitioned.
func (p *Peers) confirmDead(ctx context.Context, n ident.Node, inc ident.Incarnation) bool {
	ctx, cancel := context.WithTimeout(ctx, p.o.RevokeFor)
	defer cancel()
	for {
		alive, gone := p.opinions(ctx, n, inc)
		switch s := p.state(n); {
		case !s.dead || s.incarnation != inc:
			return false
		case alive == 0 && (gone > 0 || p.alone(n)):
			return true
		case !concurrency.SleepUntil(ctx, nil, witnessEvery):
			p.o.Log.WithField("node", n).Info("broker refuses connections, but no other broker confirms its death: its registration is left to expire")
			return false
		}
	}
}

// alone reports whether every registered broker but this one and n has been silent for noWitnessTimeout, and none refuses
// connections.
func (p *Peers) alone(n ident.Node) bool {
	for _, r := range p.o.Catalog.LiveNodes() {
		if r.Name == p.o.Self || r.Name == n {
			continue
		}
		if s := p.state(r.Name); s.up || s.dead || time.Since(s.since) < noWitnessTimeout {
			return false
		}
	}
	return true
}

// opinions counts the brokers that reach incarnation inc of n, and those that do not.
func (p *Peers) opinions(ctx context.Context, n ident.Node, inc ident.Incarnation) (alive, gone int) {
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	var mu sync.Mutex
	witnesses := slices.DeleteFunc(p.Others(), func(other ident.Node) bool { return other == n })
	concurrency.Each(len(witnesses), len(witnesses), func(i int) {
		r, err := calls.Reaches.Ask(ctx, p.o.Caller, witnesses[i], calls.ReachesRequest{Node: n, Incarnation: inc})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && r.Reaches:
			alive++
		case err == nil:
			gone++
		}
	})
	return alive, gone
}

func (p *Peers) state(n ident.Node) peerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.states[n]
}

// revoke revokes the lease of a dead process, so that nothing waits for its expiry. It does not touch another
// incarnation of the node. If the dead broker also led etcd, requests are lost, so it repeats them until the
// registration is gone.
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
		concurrency.SleepUntil(ctx, changed, txn.Retry)
	}
}

// Failed handles a broker's report that its store has failed, or hangs (calls.Failed). The broker counts as dead until
// its connection changes, because its next run connects again.
func (p *Peers) Failed(n ident.Node) {
	p.o.Log.WithField("node", n).Warn("broker counts as dead: its store failed or hangs")
	p.mu.Lock()
	s := peerState{incarnation: p.mu.states[n].incarnation, dead: true, failed: true, since: time.Now()}
	p.mu.states[n] = s
	p.notifyReplicas(n, s.event(n))
	p.mu.Unlock()
	p.o.Group.Go(func(ctx context.Context) { p.revoke(ctx, n, s.incarnation) })
	p.o.Catalog.Notify()
}

// HasFailed reports whether a broker counts as dead because of its own report (Failed).
func (p *Peers) HasFailed(n ident.Node) bool { return p.state(n).failed }

// Renounce asks the others to treat this broker as dead until it reconnects, and revokes its registration. Either may fail:
// the others also revoke it.
func (p *Peers) Renounce(ctx context.Context, lease int64) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for _, n := range p.Others() {
		asked.Go(func() {
			_, _ = calls.Failed.Ask(ctx, p.o.Caller, n, calls.None{}) // on failure T_isr and the lease expire instead
		})
	}
	for {
		try, done := context.WithTimeout(ctx, txn.Timeout)
		err := p.o.Store.Revoke(try, lease)
		done()
		if err == nil || !concurrency.SleepUntil(ctx, nil, txn.Retry) {
			return
		}
	}
}
