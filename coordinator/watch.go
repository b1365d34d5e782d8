package coordinator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replicas"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// watch applies every change of the metadata and notifies the components and the machines. It alone judges leaders.
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
			b.replicas.Retry()
		}
	}
}

// metadataChanged applies a change and passes it on. The order of the steps matters:
//
//  1. The catalog: all other steps read the new state there.
//  2. The history: it compares the catalog with the state before this change.
//  3. The notifications that read nothing now (watch delay, boot counters).
//  4. The addresses of brokers: a machine may send to a broker as soon as it is notified of it.
//  5. The registrations: a machine that receives a key whose leader is not registered would campaign.
//  6. The partitions: replicas are opened, which the steps for topics and channels look up.
//  7. The topics, then the trash: a topic that moves to the trash first appears as deleted, but its replicas stay.
//  8. The channels: they exist in open replicas only.
//  9. The sweep after a reset: it may only remove what none of the steps above has opened.
//  10. The waiting goroutines: they see the effects of all other steps.
func (b *Broker) metadataChanged(ch metadata.Change) {
	touched := b.catalog.Apply(ch)
	b.noteHistory(touched)
	b.delayed.came(ch.Revision)
	if touched.Nodes {
		b.nodesChanged.Notify()
	}
	if len(touched.Partitions) > 0 {
		b.partitionsChanged.Notify()
	}
	b.rpc.SetPeers(b.catalog.Addresses(b.self))
	for _, n := range touched.Live {
		b.peers.PostLive(n)
	}
	b.replicas.PartitionsChanged(touched.Partitions)
	for _, name := range touched.Topics {
		b.replicas.TopicChanged(name)
	}
	for _, id := range touched.Trash {
		b.replicas.TrashChanged(id)
	}
	slices.Sort(touched.Channels)
	for _, t := range slices.Compact(touched.Channels) {
		b.replicas.ChannelsChanged(t)
	}
	if ch.Reset { // tombstones may have come and gone unseen
		b.tasks.Go(b.replicas.Sweep)
	}
	b.catalog.Notify()
}

// runRegistration waits for the loss of the registration, ends the leaderships of the machines, and registers again. The
// machines receive the new incarnation from the watch.
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
		b.o.Metrics.Add(metrics.EventLost, 1)
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
		b.o.Metrics.Add(metrics.EventRegistered, 1)
		b.o.Events.Add(events.Event{Kind: events.Registration, Broker: b.self, State: "healthy", Text: string(b.self) + " registered again"})
		if now := b.Incarnation(); now != 0 { // 0: lost again already
			b.rpc.SetIncarnation(now)
		}
		b.log.WithField("incarnation", b.Incarnation()).Info("registered again")
	}
}

// watchDelay measures how long a change of this broker takes until the watch of the metadata returns it: this broker's
// copy of the metadata is as old.
type watchDelay struct {
	mu       sync.Mutex
	seen     int64     // the newest revision that the watch has returned
	awaited  int64     // the oldest own change that the watch has not returned; 0: none
	since    time.Time // when the store had made it
	measured time.Duration
}

// wrote records an own change after the store has applied it.
func (d *watchDelay) wrote(revision int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case revision <= d.seen:
		d.measured = 0 // the watch delivered the change before the answer arrived
	case d.awaited == 0:
		d.awaited, d.since = revision, time.Now()
	}
}

// came records a change delivered by the watch.
func (d *watchDelay) came(revision int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = max(d.seen, revision)
	if d.awaited != 0 && d.awaited <= d.seen {
		d.measured, d.awaited = time.Since(d.since), 0
	}
}

// delay is the delay of the last own change, or how long the oldest has been waited for.
func (d *watchDelay) delay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.awaited != 0 {
		return time.Since(d.since)
	}
	return d.measured
}
