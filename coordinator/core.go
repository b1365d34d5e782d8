package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Publisher and Subscribers are what the edges use.
func (b *Broker) Publisher() edge.Publisher { return b.gateway }

// Subscribers opens subscriptions on any topic.
func (b *Broker) Subscribers() edge.Subscribers { return b.gateway }

// Self is this broker's name.
func (b *Broker) Self() ident.Node { return b.self }

// Incarnation is that of the newest registration. It is kept while that is gone:
// request ids carry it, and two brokers must never use the same.
func (b *Broker) Incarnation() ident.Incarnation { return ident.Incarnation(b.session.last.Load()) }

// Topic finds a topic in the watched metadata.
func (b *Broker) Topic(name string) (gateway.Topic, bool) {
	t, ok := b.catalog.topic(name)
	if !ok {
		return gateway.Topic{}, false
	}
	return gateway.Topic{Name: name, ID: t.ID, Partitions: t.Partitions, Paused: t.Paused, Ordered: t.Ordered}, true
}

// Leader is who leads a partition as the metadata says, or in a later epoch the
// replica here; false while that incarnation is not live.
func (b *Broker) Leader(p ident.Partition) (gateway.Leadership, bool) {
	s, ok := b.catalog.partition(p)
	if !ok {
		return gateway.Leadership{}, false
	}
	if l, ok := b.followed(p, s.Epoch); ok {
		return l, true
	}
	r, live := b.catalog.liveNode(s.Leader)
	l := gateway.Leadership{Node: s.Leader, Incarnation: s.LeaderIncarnation, Epoch: s.Epoch}
	return l, live && r.Incarnation == s.LeaderIncarnation
}

// followed is the leader whose appends the replica here takes in a later epoch than
// the metadata is known to name: the watch may be behind for as long as this broker
// does not reach the store, although it reaches the leader.
func (b *Broker) followed(p ident.Partition, known ident.Epoch) (gateway.Leadership, bool) {
	h, ok := b.host(p)
	if !ok {
		return gateway.Leadership{}, false
	}
	v := h.View()
	if v.Epoch <= known || v.Follows == "" {
		return gateway.Leadership{}, false
	}
	inc, up := b.members.reached(v.Follows)
	return gateway.Leadership{Node: v.Follows, Incarnation: inc, Epoch: v.Epoch}, up
}

// Leads reports whether this broker serves the partition now.
func (b *Broker) Leads(p ident.Partition) bool {
	h, ok := b.host(p)
	return ok && h.Leading()
}

// Propose hands a put to the partition's loop; c is completed exactly once, perhaps before Propose returns.
func (b *Broker) Propose(p ident.Partition, d queue.Draft, c gateway.Completer) {
	l := b.loopOf(p)
	if !l.hand(work{kind: workPropose, id: p, draft: d, done: c, at: time.Now()}, l.puts.Enter(), d.Size()) {
		l.answer(c, replica.Completion{Outcome: replica.NotLeader})
	}
}

// Queue is the channels of a replica hosted here.
func (b *Broker) Queue(p ident.Partition) (*nsqd.Partition, bool) {
	h, ok := b.host(p)
	if !ok {
		return nil, false
	}
	return h.queue, true
}

// Changed is closed at the next change of metadata, leadership or peers.
func (b *Broker) Changed() <-chan struct{} { return b.moved.changed() }

// keepRegistered waits for the registration to be lost, tells the machines to
// stop leading, and registers anew. The machines hear of the new incarnation by
// the watch. Started by start, ends with the broker.
func (b *Broker) keepRegistered(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.session.gone():
		}
		if b.stopping.Load() {
			return
		}
		b.log.Warn("REGISTRATION lost: this broker leads nothing until it has a new one")
		b.o.Metrics.Event(metrics.EventLost)
		b.session.inc.Store(0)
		for _, h := range b.hosted() {
			b.post(h.id, replica.Live{Node: b.self})
		}
		b.moved.notify()
		b.awaitDisk(ctx)
		if err := b.session.registerUntil(ctx); err != nil {
			if ctx.Err() == nil {
				b.end(err)
			}
			return
		}
		b.o.Metrics.Event(metrics.EventRegistered)
		b.rpc.SetIncarnation(b.Incarnation())
		b.log.WithField("incarnation", b.Incarnation()).Info("REGISTERED anew")
	}
}

// keepCounting raises the boot counter now and then. Started by start, ends with
// the broker.
func (b *Broker) keepCounting(ctx context.Context) {
	path := nodeFile{fs: b.o.FS, dir: b.o.Dir, cluster: b.o.Cluster}
	every(ctx, b.o.RecountEvery, func() {
		if b.stopping.Load() || b.session.incarnation() == 0 {
			return
		}
		try, cancel := context.WithTimeout(ctx, metaTimeout)
		defer cancel()
		err := b.session.recount(try, func(boot int64) error { return path.save(b.self, boot) })
		if errors.Is(err, meta.ErrWentBack) {
			b.end(err)
		} else if err != nil {
			b.log.WithError(err).Info("cannot raise the boot counter, trying again later")
		}
	})
}
