package coordinator

import (
	"context"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
)

// awaitStore waits for the store to stop. Started by drive, ends with the broker.
func (b *Broker) awaitStore(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-b.store.Failed():
		b.storeFailed(b.store.Err())
	}
}

// storeFailed handles a store that has stopped permanently. Its machines can no longer transfer leaderships, so the
// other brokers are asked to treat this one as dead: they elect leaders and shrink the in-sync sets at once. The
// gateway forwards to them until the process ends.
func (b *Broker) storeFailed(err error) {
	if !b.end(err) {
		return
	}
	b.log.WithError(err).Error("store failed: giving up leaderships and stopping")
	b.stopping.Store(true)
	b.tasks.Go(b.giveUp)
}

// end sends the reason to Failed, so that the process ends. It returns false if an earlier call did.
func (b *Broker) end(err error) bool {
	select {
	case b.failed <- err:
		return true
	default:
		return false
	}
}

// Failed receives one error after which the process should end.
func (b *Broker) Failed() <-chan error { return b.failed }

// giveUp tells the other brokers that this one's store has failed, and ends the registration. If the metadata does not
// answer, the lease expires.
func (b *Broker) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.o.SessionTTL)
	defer cancel()
	b.session.Drop()
	b.peers.Renounce(ctx, b.session.LeaseID())
}

// anyReplica reports whether match holds for a replica here.
func (b *Broker) anyReplica(match func(*replica.View) bool) bool {
	return slices.ContainsFunc(b.engine.Partitions(), func(p *engine.Partition) bool { return match(p.View()) })
}
