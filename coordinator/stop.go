package coordinator

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// publishTimeout bounds each of the two writes of a stopping broker to the metadata: the notice that it stops, and
	// the end of its registration. If the other brokers also stop, the metadata has no majority, and a longer wait
	// would not help. Brokers that miss the notice detect the stop themselves.
	publishTimeout = 2 * txn.Timeout
	settleTimeout  = time.Second // of the wait for the channels' last changes
	// transferStall is the time without progress after which the transfers end: the targets, or the metadata, may be stopping
	// too.
	transferStall = 500 * time.Millisecond
)

// TransferLeadership transfers every partition led here to another live member of its in-sync set. It returns when that is
// done, when no transfer makes progress, or when ctx ends. The others elect leaders of the remaining partitions once this
// broker is gone; until then the front ends serve.
func (b *Broker) TransferLeadership(ctx context.Context) {
	if b.stopping.Swap(true) {
		return
	}
	b.log.Info("stopping: transferring leaderships")
	say, cancel := context.WithTimeout(ctx, publishTimeout)
	if err := b.session.PublishHandingOver(say); err != nil { // on an error, another broker may still place a replica here
		b.log.WithError(err).Warn("cannot notify the other brokers of the stop")
	}
	cancel()
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(transferStall, cancel)
	defer stall.Stop()
	least := math.MaxInt
	_ = b.catalog.Await(ctx, func() bool {
		left := 0 // transfers that were started and are not done
		for _, p := range b.engine.Partitions() {
			v := p.View()
			if v.Leader != b.self || !leads(v) {
				continue
			}
			if to, ok := b.transferTarget(v); ok {
				left++
				p.TransferLeadership(to)
			}
		}
		if left < least {
			least = left
			stall.Reset(transferStall)
		}
		return left == 0
	})
}

// transferTarget is another live in-sync member; a drained member only if there is no other.
func (b *Broker) transferTarget(v *replica.View) (to ident.Node, ok bool) {
	for _, m := range v.ISR {
		if m.Node == b.self || !b.directory.Alive(m.Node) {
			continue
		}
		if to, ok = m.Node, true; b.catalog.Drain(to) == "" {
			break
		}
	}
	return to, ok
}

// Stop transfers leaderships, leaves the cluster, and closes. The caller closes the front ends after TransferLeadership.
func (b *Broker) Stop(ctx context.Context) {
	b.TransferLeadership(ctx)
	settle, done := context.WithTimeout(ctx, settleTimeout)
	b.engine.Settle(settle, b.peers.Dead)
	done()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	if err := b.session.Leave(leave); err != nil {
		b.log.WithError(err).Warn("cannot end the registration: it expires with its lease")
	}
	if b.Close() == nil {
		if err := b.session.NoteCleanStop(); err != nil {
			b.log.WithError(err).Warn("cannot record the planned stop")
		}
	}
}

// Close ends everything at once, in the reverse order of the start. Every put that waits is answered. Further calls do
// nothing. An error means that the store may lack writes that were not yet synced.
func (b *Broker) Close() error {
	b.stopping.Store(true)
	if !b.tasks.Close() {
		return nil
	}
	b.catalog.Close()
	b.dispatch.Close()
	if b.Gateway != nil {
		_ = b.Gateway.Close()
	}
	if b.rpc != nil {
		_ = b.rpc.Close()
	} else {
		_ = b.o.Listen.Close()
	}
	b.tasks.Wait()
	if b.engine != nil {
		b.engine.Stop()
		b.proposer.Stop()
	}
	if b.store == nil {
		return nil
	}
	err := b.store.Close()
	if err != nil {
		b.log.WithError(err).Error("cannot close the store")
	}
	return err
}

// awaitStore waits for the store to stop permanently. Its machines can then no longer transfer leaderships, so this
// broker asks the others to treat it as dead: they elect leaders and shrink the in-sync sets at once. The gateway
// forwards to them until the process ends. If the metadata does not answer, the lease expires.
func (b *Broker) awaitStore(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-b.store.Failed():
	}
	err := b.store.Err()
	if !b.end(err) {
		return
	}
	b.log.WithError(err).Error("store failed: giving up leaderships and stopping")
	b.stopping.Store(true)
	ctx, cancel := context.WithTimeout(ctx, b.o.SessionTTL)
	defer cancel()
	b.session.Drop()
	b.peers.Renounce(ctx, b.session.LeaseID())
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

func (b *Broker) anyReplica(match func(*replica.View) bool) bool {
	return slices.ContainsFunc(b.engine.Partitions(), func(p *engine.Partition) bool { return match(p.View()) })
}
