package coordinator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// fail reports that the broker cannot go on: its store has stopped for good. The
// machines here can give nothing away any more, so the others are told to treat
// this broker as dead: they elect new leaders and shrink the in-sync sets at
// once. Its edges still forward to them until the process ends.
func (b *Broker) fail(err error) {
	if !b.end(err) {
		return
	}
	b.log.WithError(err).Error("STORE failed: nothing is acknowledged here any more, this broker gives up its leaderships and must go")
	b.stopping.Store(true)
	b.background(b.giveUp)
}

// end has the process end; false if it has to already.
func (b *Broker) end(err error) bool {
	select {
	case b.failed <- err:
		return true
	default:
		return false
	}
}

// Failed tells once why the broker cannot go on: the process should end.
func (b *Broker) Failed() <-chan error { return b.failed }

// giveUp tells the others that this broker's store has failed and ends the
// registration, or lets it run out.
func (b *Broker) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.o.SessionTTL)
	defer cancel()
	b.session.inc.Store(0)
	b.renounce(ctx, b.session.leaseID())
}

// renounce tells the others to count this broker as dead until it connects anew, and
// ends its registration. Either may fail; the others end it, too.
func (b *Broker) renounce(ctx context.Context, lease int64) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, r := range b.catalog.lives() {
		if r.Name != b.self && b.members.up(r.Name) {
			calls.Go(func() {
				_ = b.rpc.Call(ctx, r.Name, methodFailed, none{}, &none{}) // else T_isr and the lease tell
			})
		}
	}
	for {
		try, done := context.WithTimeout(ctx, txnTimeout)
		err := b.meta.Revoke(try, lease)
		done()
		if err == nil || !waitFor(ctx, nil, createRetry) {
			return
		}
	}
}

// keepUnhindered lets others lead while this broker's disk does not answer, neither
// with a sync nor with an error: no put is committed without it, and a broker that
// answers for itself keeps its registration. Started by start, ends with the broker.
func (b *Broker) keepUnhindered(ctx context.Context) {
	every(ctx, unreachedEvery, func() {
		lease := b.session.leaseID()
		if b.stopping.Load() || b.Incarnation() == 0 || !b.some(func(v *replica.View) bool { return v.Hindered }) {
			return
		}
		b.log.Warn("DISK does not answer, those of other brokers do: this broker gives up its leaderships")
		b.renounce(ctx, lease)
	})
}

// awaitDisk waits while the disk does not answer: who registers may be elected.
func (b *Broker) awaitDisk(ctx context.Context) {
	for b.some(func(v *replica.View) bool { return v.Hung }) && waitFor(ctx, nil, unreachedEvery) {
		continue
	}
}

// some reports whether a replica here is such a one.
func (b *Broker) some(such func(*replica.View) bool) bool {
	return slices.ContainsFunc(b.hosted(), func(h *hosted) bool { return such(h.View()) })
}

// failedPeer takes a broker's word that its store has failed, or hangs. It counts as dead
// until its connection changes: another run connects anew.
func (m *membership) failedPeer(n ident.Node) {
	m.log.WithField("node", n).Warn("the store of a broker has failed, or hangs: it counts as dead")
	m.mu.Lock()
	s := peerState{incarnation: m.mu.peers[n].incarnation, dead: true, since: time.Now()}
	m.mu.peers[n] = s
	m.broker.tellReplicas(n, s.event(n))
	m.mu.Unlock()
	m.broker.background(func(ctx context.Context) { m.bury(ctx, n, s.incarnation) })
	m.broker.moved.notify()
}
