package coordinator

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// tellTimeout bounds what is written to the metadata by a broker that stops: that
	// it does, and the end of its registration. Without a majority, because the others
	// stop too, it waits for nothing; who does not get the word finds out by himself.
	tellTimeout = 2 * txnTimeout
	// settleTimeout bounds the wait for the channels' last changes.
	settleTimeout = time.Second
	// handOverStall ends a hand-over of which nothing is seen for so long: those who
	// should take over, or the metadata, may be stopping too.
	handOverStall = 500 * time.Millisecond
)

// HandOver gives every partition led here to another live member of its in-sync
// set, and returns when that is done, nothing moves any more, or ctx ends: what is
// left is elected by the others once this broker is gone. The edges still serve
// meanwhile.
func (b *Broker) HandOver(ctx context.Context) {
	if b.stopping.Swap(true) {
		return
	}
	b.log.Info("STOPPING, handing leaderships over")
	say, cancel := context.WithTimeout(ctx, tellTimeout)
	if err := b.session.handingOver(say); err != nil { // then nobody knows, and may place something here yet
		b.log.WithError(err).Warn("cannot tell the others that this broker stops")
	}
	cancel()
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(handOverStall, cancel)
	defer stall.Stop()
	least := math.MaxInt
	_ = b.await(ctx, func() bool {
		left := 0
		for _, h := range b.hosted() {
			v := h.View()
			if v.Leader != b.self || v.Role != replica.Leader && v.Role != replica.Electing {
				continue
			}
			if to, ok := b.heir(v); ok {
				left++
				h.flush()
				b.post(h.id, replica.HandOver{To: to})
			}
		}
		if left < least {
			least = left
			stall.Reset(handOverStall)
		}
		return left == 0
	})
}

// heir is a live in-sync member other than this broker.
func (b *Broker) heir(v *replica.View) (ident.Node, bool) {
	for _, m := range v.ISR {
		if m.Node != b.self && b.alive(m.Node) {
			return m.Node, true
		}
	}
	return "", false
}

// Stop hands leaderships over, leaves the cluster, and closes. The caller closes
// the edges between HandOver and Stop, or after.
func (b *Broker) Stop(ctx context.Context) {
	b.HandOver(ctx)
	b.settleChannels(ctx)
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	if err := b.session.leave(leave); err != nil {
		b.log.WithError(err).Warn("cannot end the registration, it will run out")
	}
	b.Close()
}

// settleChannels makes the channels' last changes durable, on all of the in-sync
// set: a requeue of the last 10 ms must not be forgotten by a planned stop.
func (b *Broker) settleChannels(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, h := range b.hosted() {
		if h.Leading() {
			h.flush()
		}
	}
	for _, l := range b.loops {
		ack := make(chan struct{})
		if l.mail.post(work{kind: workBarrier, ack: ack}) {
			select {
			case <-ack:
			case <-ctx.Done():
			}
		}
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for !b.channelsSettled() {
		select {
		case <-tick.C:
		case <-ctx.Done(): // the others did not answer: what they miss is redelivered
			return
		}
	}
}

// channelsSettled reports whether all in-sync replicas hold every change of the
// channels led here, or never will because one of them has died.
func (b *Broker) channelsSettled() bool {
	for _, h := range b.hosted() {
		v := h.View()
		if v.Role != replica.Leader || v.Confirmed >= v.Issued {
			continue
		}
		if !slices.ContainsFunc(v.ISR, func(m ident.Member) bool { return b.members.dead(m.Node) }) {
			return false
		}
	}
	return true
}

// Close ends everything at once, in the reverse order of the start. Every put
// that waits is answered. It may be called again.
func (b *Broker) Close() {
	b.stopping.Store(true)
	b.mu.Lock()
	if b.mu.closed {
		b.mu.Unlock()
		return
	}
	b.mu.closed = true
	b.mu.Unlock()
	b.cancel()
	if b.gateway != nil {
		_ = b.gateway.Close()
	}
	if b.rpc != nil {
		_ = b.rpc.Close()
	} else {
		_ = b.o.Listen.Close()
	}
	b.done.Wait()
	for _, l := range b.loops {
		l.stop()
	}
	if b.proposer != nil {
		b.proposer.stop()
		b.reader.stop()
	}
	if b.store != nil {
		if err := b.store.Close(); err != nil {
			b.log.WithError(err).Error("cannot close the store")
		}
	}
}
