package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// watch applies every change of the metadata and notifies the parts and the machines. It
// alone judges leaders. Started by drive, ends with the broker.
func (b *Broker) watch(ctx context.Context) {
	changes := b.o.Meta.Watch(ctx, b.keys.Root())
	retry := time.NewTicker(replicas.RetryEvery)
	defer retry.Stop()
	for {
		select {
		case ch, open := <-changes:
			if !open {
				return
			}
			b.metadataChanged(ch)
		case <-b.peers.Changed():
			b.peers.JudgeLeaders()
		case <-retry.C:
			b.hosting.Retry()
		}
	}
}

func (b *Broker) metadataChanged(ch metadata.Change) {
	touched := b.catalog.Apply(ch)
	b.noteHistory(touched)
	b.delayed.came(ch.Revision)
	if touched.Nodes {
		b.changed.nodes.Notify()
	}
	if len(touched.Partitions) > 0 {
		b.changed.partitions.Notify()
	}
	b.rpc.SetPeers(b.catalog.Addresses(b.self))
	for _, n := range touched.Live {
		b.peers.PostLive(n)
	}
	b.hosting.PartitionsChanged(touched.Partitions)
	for _, name := range touched.Topics {
		b.hosting.TopicChanged(name)
	}
	for _, id := range touched.Trash {
		b.hosting.TrashChanged(id)
	}
	slices.Sort(touched.Channels)
	for _, t := range slices.Compact(touched.Channels) {
		b.hosting.ChannelsChanged(t)
	}
	if ch.Reset { // tombstones may have come and gone unseen
		b.tasks.Go(b.hosting.Sweep)
	}
	b.catalog.Notify()
}

// runRegistration waits for the registration to be lost, stops the leaderships of
// the machines, and registers again. The machines get the new incarnation by
// the watch. Started by drive, ends with the broker.
func (b *Broker) runRegistration(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.session.Lost():
		}
		if b.stopping.Load() {
			return
		}
		b.log.Warn("registration lost: this broker leads nothing until it has a new one")
		b.o.Metrics.Event(metrics.EventLost)
		b.o.Events.Add(events.Event{Kind: events.Registration, Broker: b.self, State: "unsafe", Text: string(b.self) + " lost its registration and leads nothing until it has a new one"})
		b.session.Drop()
		for _, p := range b.engine.Partitions() {
			p.Post(replica.Live{Node: b.self})
		}
		b.catalog.Notify()
		watchdog{b}.awaitDisk(ctx)
		if err := b.session.Register(ctx); err != nil {
			if ctx.Err() == nil {
				b.end(err)
			}
			return
		}
		b.o.Metrics.Event(metrics.EventRegistered)
		b.o.Events.Add(events.Event{Kind: events.Registration, Broker: b.self, State: "healthy", Text: string(b.self) + " registered again"})
		if now := b.Incarnation(); now != 0 { // 0: lost again already
			b.rpc.SetIncarnation(now)
		}
		b.log.WithField("incarnation", b.Incarnation()).Info("registered again")
	}
}

// counting are the inputs of the boot counter.
func (b *Broker) counting() session.Counting {
	return session.Counting{
		Every: b.o.RecountEvery, Changed: b.changed.partitions, Stopping: b.stopping.Load, WentBack: func(err error) { b.end(err) },
		Written: func() int64 { _, bytes := b.store.Journalled(); return bytes },
	}
}
