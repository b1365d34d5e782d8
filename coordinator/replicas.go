package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/sirupsen/logrus"
)

// errRestored is why the replicas of a restored data path are new members.
var errRestored = errors.New("coordinator: this data path is older than what the cluster knows of this broker")

func (b *Broker) openStore(restored bool) error {
	var doubt error
	if restored {
		doubt = errRestored
	}
	s, err := store.Open(store.Options{
		FS: b.o.FS, Dir: b.o.Dir, BootID: b.o.BootID, NoSync: b.o.NoSync,
		SegmentBytes: b.o.SegmentBytes, JournalBytes: b.o.JournalBytes, OpenFiles: b.o.OpenFiles, Log: b.log, Fold: fold, Doubt: doubt,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	b.store = s
	b.o.Metrics.Counter("journal_syncs_total", "Groups of puts made durable by one fdatasync each.", func() float64 {
		syncs, _ := s.Journalled()
		return float64(syncs)
	})
	b.o.Metrics.Counter("journal_bytes_total", "Bytes written to the journal.", func() float64 {
		_, bytes := s.Journalled()
		return float64(bytes)
	})
	b.o.Metrics.Gauge("damaged_places", "Places of replicas here that cannot be read and were not mended yet.", func() float64 {
		places := 0
		for _, p := range s.Partitions() {
			places += len(p.Damaged())
		}
		return float64(places)
	})
	return nil
}

// watch owns the catalog: it applies every change of the metadata and tells the
// machines. It alone judges leaders, so that what a machine hears last is the
// newest. Started by start, ends with the broker.
func (b *Broker) watch(ctx context.Context) {
	changes := b.meta.Watch(ctx, b.keys.Root())
	for {
		select {
		case ch, open := <-changes:
			if !open {
				return
			}
			b.metadataChanged(ch)
		case <-b.reach:
			b.judgeLeaders()
		}
	}
}

func (b *Broker) metadataChanged(ch meta.Change) {
	c := b.catalog.apply(ch)
	b.rpc.SetPeers(b.addressBook())
	for _, n := range c.live {
		b.tellLive(n)
	}
	b.makeStores(c.partitions)
	for _, p := range c.partitions {
		b.partitionChanged(p)
	}
	for _, name := range c.topics {
		b.topicChanged(name)
	}
	slices.Sort(c.channels)
	for _, t := range slices.Compact(c.channels) {
		b.tellPolicies(t)
	}
	if ch.Reset { // tombstones may have come and gone unseen
		b.background(b.sweep)
	}
	b.moved.notify()
}

// makeStores makes the stores that are missing here, many at once: each takes some
// syncs, and nothing else is heard meanwhile.
func (b *Broker) makeStores(of []ident.Partition) {
	var missing []ident.Partition
	for _, p := range of {
		s, _ := b.catalog.partition(p)
		if _, stored := b.store.Partition(p); !stored && slices.Contains(s.Replicas, b.self) {
			missing = append(missing, p)
		}
	}
	if len(missing) < 2 {
		return
	}
	parallel(len(missing), openers, func(i int) {
		defer b.turn(missing[i])()
		if topic, ok := b.catalog.name(missing[i].Topic); ok {
			_, _ = b.stored(topic, missing[i]) // open says what is wrong
		}
	})
}

// liveEvent tells a partition's machine of a broker's registration. A leader that
// is to be replaced although it lives is told as gone.
func (b *Broker) liveEvent(s meta.PartitionState, n ident.Node) replica.Event {
	r, _ := b.catalog.liveNode(n)
	if b.cutOff(s, r) {
		return replica.Live{Node: n}
	}
	return replica.Live{Node: n, Incarnation: r.Incarnation, HandingOver: r.HandingOver}
}

// partitionChanged opens a replica that is placed here, tells one that is open,
// and lets go of one that was moved away, also while this broker was down.
func (b *Broker) partitionChanged(p ident.Partition) {
	s, ok := b.catalog.partition(p)
	if !ok {
		return // gone: only the topic's tombstone says what that means
	}
	if slices.Contains(s.Replicas, b.self) {
		h, err := b.open(p, s)
		if err != nil {
			b.log.WithError(err).WithField("partition", p).Error("cannot open a replica")
			return
		}
		h.muted.Store(false)
		b.introduce(h, s)
	} else if h, ok := b.host(p); ok {
		h.told = nil // it hears of its replicas' brokers anew if it is moved back
	}
	b.post(p, replica.Meta{State: s})
	if _, stored := b.store.Partition(p); stored && b.isAway(s) {
		b.background(func(ctx context.Context) { b.moveAway(ctx, p) })
	}
}

// introduce tells a machine about its replicas' brokers, once for each; and about
// those that say that they are cut off whenever the partition changes, for that
// decides whether they are to be replaced.
func (b *Broker) introduce(h *hosted, s meta.PartitionState) {
	known := slices.Equal(h.told, s.Replicas)
	h.told = s.Replicas
	for _, n := range s.Replicas {
		if r, _ := b.catalog.liveNode(n); !known || len(r.Unreached) > 0 {
			b.post(h.id, b.liveEvent(s, n))
		}
	}
	if known {
		return
	}
	if !slices.Contains(s.Replicas, s.Leader) && s.Leader != "" {
		b.post(h.id, b.liveEvent(s, s.Leader))
	}
	b.members.introduce(h.id, s.Replicas)
}

// open finds the machine of a partition or makes it from its store, which is
// created if this broker does not have it.
func (b *Broker) open(p ident.Partition, s meta.PartitionState) (*hosted, error) {
	defer b.turn(p)()
	if h, ok := b.host(p); ok {
		return h, nil
	}
	topic, ok := b.catalog.name(p.Topic)
	if !ok {
		return nil, fmt.Errorf("partition %s has no topic", p)
	}
	st, err := b.stored(topic, p)
	if err != nil {
		return nil, err
	}
	h := &hosted{id: p, topic: topic, loop: b.loopOf(p), store: st, tickets: map[uint64]ticket{}}
	h.view.Store(&replica.View{})
	q := b.o.Queue
	q.Policy = func(channel string) nsqd.Policy { return b.policyOf(p.Topic, channel) }
	q.Wake, q.Fence = func(atNS int64) { b.agenda.put(h, atNS) }, &b.fence
	q.Pace = b.pace
	h.queue = nsqd.NewPartition(topic, p, h, h, q)
	replica.Replay(h.queue, st.Confirms())
	b.limitTopic(h)
	o := b.o.Replica
	o.Partition, o.Seed = p, hashText(p.String()+string(b.self))
	o.Self = replica.Peer{Node: b.self, Incarnation: b.Incarnation(), Store: st.StoreID()}
	h.machine = replica.New(st.Restored(), st.Index(), h.queue, o)
	st.Adopted()
	b.setHost(p, h)
	h.loop.mail.post(work{kind: workAdd, id: p, hosted: h})
	return h, nil
}

// fold makes one full version of the channel state for a checkpoint. No channel
// of it ever serves, so it needs neither a log nor other replicas.
func fold(topic string, id ident.Partition, confirms []queue.Confirm) ([]byte, bool) {
	q := nsqd.NewPartition(topic, id, nil, nil, nsqd.Options{})
	replica.Replay(q, confirms)
	return q.Snapshot(), true
}

// turn waits for whoever creates, opens or lets go of a partition's store, and
// keeps others from it until it is called.
func (b *Broker) turn(p ident.Partition) (unlock func()) {
	mu := &b.opening[hash(p)%openers]
	mu.Lock()
	return mu.Unlock
}

// stored finds or creates the store of a partition. The caller has its turn.
func (b *Broker) stored(topic string, p ident.Partition) (*store.Partition, error) {
	if st, ok := b.store.Partition(p); ok {
		return st, nil
	}
	st, err := b.store.Create(topic, p)
	if err != nil {
		return nil, fmt.Errorf("create the store of %s: %w", p, err)
	}
	return st, nil
}

// close stops hosting a partition; nothing of it runs afterwards. Its files stay.
// The caller has the partition's turn, or is the goroutine that opens them.
func (b *Broker) close(p ident.Partition) {
	h := b.setHost(p, nil)
	if h == nil {
		return
	}
	ack := make(chan struct{})
	if h.loop.mail.post(work{kind: workRetire, id: p, ack: ack}) {
		<-ack
	}
	b.agenda.forget(h)
}

// topicChanged tells replicas of new limits, and drops what a tombstone names.
func (b *Broker) topicChanged(name string) {
	t, ok := b.catalog.record(name)
	if ok && !t.Deleted {
		for _, h := range b.hostedOf(t) {
			b.limitTopic(h)
		}
	}
	if !ok || !t.Deleted {
		return
	}
	var gone []ident.Partition
	for n := range t.Partitions {
		p := ident.Partition{Topic: t.ID, Number: uint16(n)}
		if _, stored := b.store.Partition(p); stored {
			b.close(p)
			gone = append(gone, p)
		}
	}
	b.background(func(context.Context) { // each takes some syncs, and the metadata goes on
		for _, p := range gone {
			b.trashDeleted(p, "its topic was deleted")
		}
	})
}

// trash lets go of a replica. The caller has the partition's turn.
func (b *Broker) trash(p ident.Partition, why string) {
	b.close(p)
	log := b.log.WithFields(logrus.Fields{"topic_id": p.Topic, "partition": p.Number})
	if err := b.store.Trash(p); err != nil {
		log.WithError(err).Error("cannot trash a replica")
		return
	}
	log.Infof("REPLICA trashed: %s", why)
}

// trashDeleted trashes what is here of a deleted topic: its id never comes back.
func (b *Broker) trashDeleted(p ident.Partition, why string) {
	defer b.turn(p)()
	if _, stored := b.store.Partition(p); stored {
		b.trash(p, why)
	}
}

// moveAway trashes a replica whose partition's key, read linearizably after it
// has ceased to acknowledge, names this broker no more. If it was moved back
// meanwhile, the change that says so lets it go on: until it is trashed its machine
// stays, which alone knows how far the log is.
func (b *Broker) moveAway(ctx context.Context, p ident.Partition) {
	if muted := b.whileAway(p, func() { b.mute(p) }); !muted {
		return
	}
	e, err := b.readUntil(ctx, b.keys.Partition(p))
	if err != nil {
		return
	}
	if s, err := meta.DecodePartition(e); err != nil || !b.isAway(s) {
		return
	}
	b.whileAway(p, func() { b.trash(p, "it was moved to other brokers") })
}

// mute returns when the machine of a partition, if there is one, says nothing any
// more.
func (b *Broker) mute(p ident.Partition) {
	h, ok := b.host(p)
	if !ok {
		return
	}
	h.muted.Store(true)
	ack := make(chan struct{})
	if h.loop.mail.post(work{kind: workBarrier, ack: ack}) {
		<-ack
	}
}

// whileAway does something with the files of a partition that, as far as this
// broker has heard, was moved to others. Nothing opens it meanwhile.
func (b *Broker) whileAway(p ident.Partition, do func()) bool {
	defer b.turn(p)()
	s, ok := b.catalog.partition(p)
	if _, stored := b.store.Partition(p); !ok || !stored || !b.isAway(s) {
		return false
	}
	do()
	return true
}

// isAway: this broker neither is to hold the partition nor counts for it still.
func (b *Broker) isAway(s meta.PartitionState) bool {
	return !slices.Contains(s.Replicas, b.self) &&
		!slices.ContainsFunc(s.ISR, func(m ident.Member) bool { return m.Node == b.self })
}
