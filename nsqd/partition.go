package nsqd

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Partition holds all channels of one partition on this broker. On a follower it only holds their
// state (Apply, Replace, Snapshot). Lead lets it serve subscribers.
//
// Lock order: emit → updates.applying → mu → Channel.mu. The locks of openChanges and relocations are leaves.
type Partition struct {
	topic  string
	id     ident.Partition
	source Log
	rep    Replicator
	o      Options

	timers timers
	fences fences
	ttl    atomic.Int64 // ms; 0: messages have no time to live
	counts partitionCounts

	// emit makes computing and submitting a delta one step, so that deltas are submitted in the order in which they
	// apply.
	emit    sync.Mutex
	updates updates

	mu sync.RWMutex // guards the fields below, and updates.queue

	channels   map[string]*Channel // nil before the first one: most replicas of an idle topic have none
	leadership leadership
	pause      topicPause
	keep       ident.Sequence // first sequence that the topic keeps while it has no channels

	openChanges openChanges // the last three have their own locks
	relocations relocations
	work        works
}

// leadership is the state that a partition has only while this broker leads it.
type leadership struct {
	active      bool
	epoch       ident.Epoch
	committed   ident.Position
	inherited   ident.Sequence // the committed end when it began
	hadChannels bool           // a channel has existed since then
	earlier     uint64         // messages committed in earlier leaderships of this process
}

// topicPause withholds the messages at and above the barrier from all channels.
type topicPause struct {
	on      bool
	barrier ident.Sequence
}

// partitionCounts only rise.
type partitionCounts struct {
	stored     atomic.Int64  // bytes of bodies committed under this broker since its start
	attached   atomic.Uint64 // subscriptions
	deliveries atomic.Uint64 // number of deliveries by this process, from which they are numbered
}

// NewPartition returns a follower without channels.
func NewPartition(topic string, id ident.Partition, log Log, rep Replicator, o Options) *Partition {
	p := &Partition{topic: topic, id: id, source: log, rep: rep, o: o.withDefaults()}
	p.timers.due.Store(never)
	return p
}

// setChannelLocked adds a channel, or replaces the one of the same name.
func (p *Partition) setChannelLocked(name string, c *Channel) {
	if p.channels == nil {
		p.channels = make(map[string]*Channel)
	}
	p.channels[name] = c
}

// Lead starts serving, after the epoch's marker has been committed. Messages that are neither finished nor deferred can be
// delivered again; the deliveries that were in flight at the previous leader do not count as attempts.
func (p *Partition) Lead(epoch ident.Epoch) {
	p.ApplyPending()
	p.startLeading(epoch)
	p.o.Wake(0) // timers that expired while this broker did not lead fire now
}

// startLeading starts serving. If cursors moved back or an ordered channel is gated, it posts a change. Even if the
// change is empty, its completion proves that the replicas have all earlier state.
func (p *Partition) startLeading(epoch ident.Epoch) {
	p.emit.Lock()
	defer p.emit.Unlock()
	gated, back := p.lead(epoch)
	if gated || len(back) > 0 {
		p.post(&pendingChange{p: p, ungatesOrdered: gated}, back...)
	}
}

// lead reports whether an ordered channel is gated until its state is replicated, and which cursors moved back.
func (p *Partition) lead(epoch ident.Epoch) (gated bool, back []state.Record) {
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	committed := p.source.Committed()
	if !p.leadership.active {
		p.leadership.inherited = committed.Sequence
		p.leadership.hadChannels = len(p.channels) > 0
	}
	back = p.moveBackLocked(committed)
	p.leadership.active, p.leadership.epoch, p.leadership.committed = true, epoch, committed
	p.openChanges.open()
	for _, c := range p.channels {
		gated = c.gateUntilReplicated() || gated
		c.lead(epoch, p.limitLocked(), now)
	}
	return gated, back
}

// moveBackLocked moves channels that are beyond the end of the log back to the end. Normally a leader has every message
// that is finished. But the channel state of a leader that an operator chose after the other replicas' disks were lost
// may be newer than its log. Without the move, the next published messages would count as finished, a paused topic would
// let them through, and relocations would point beyond the end of the log.
func (p *Partition) moveBackLocked(committed ident.Position) (back []state.Record) {
	end := committed.Sequence
	for name, c := range p.channels {
		c.mu.Lock()
		if c.cursor.End() > end {
			kept := c.cursor.Full().Below(end)
			back = append(back, state.Record{Kind: state.KindSeek, Channel: name, At: kept.Confirmed},
				state.Record{Kind: state.KindProgress, Channel: name, Progress: kept})
		}
		c.mu.Unlock()
	}
	if p.pause.on && p.pause.barrier > end {
		back = append(back, state.Record{Kind: state.KindBarrier, Flags: state.FlagPaused, At: end})
	}
	if seqs := p.relocations.beyond(committed.Offset); len(seqs) > 0 {
		back = append(back, state.Record{Kind: state.KindRelocate, Flags: state.FlagBeyond, Offset: committed.Offset, Seqs: seqs})
	}
	if p.keep > end {
		back = append(back, state.Record{Kind: state.KindKeep, Flags: state.FlagBack, At: end})
	}
	for _, r := range back {
		p.applyLocked(r)
	}
	return back
}

// Unlead stops serving at once. Deliveries are forgotten, waiting changes fail, subscriptions end, and ephemeral
// channels are removed.
func (p *Partition) Unlead() { p.unlead() }

// Retire is Unlead for a transfer: it submits the last changes. Each finish is either among them or refused with
// ErrNotLeader.
func (p *Partition) Retire() {
	p.emit.Lock()
	defer p.emit.Unlock()
	if records := p.unlead(); len(records) > 0 {
		p.rep.Submit(Change{Delta: state.EncodeDelta(records)})
	}
}

// unlead returns the changes of the channels that no delta contains yet.
func (p *Partition) unlead() (records []state.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leadership.earlier, p.leadership.active = p.ledLocked(), false
	p.openChanges.close()
	for _, name := range slices.Sorted(maps.Keys(p.channels)) {
		c := p.channels[name]
		made, changed := c.unlead(ErrNotLeader)
		switch {
		case c.ephemeral:
			delete(p.channels, name)
			p.work.forget(name)
		case changed:
			records = append(records, state.Record{Kind: state.KindProgress, Channel: name, Progress: made})
		}
	}
	p.timers.dirty.Store(false)
	p.timers.due.Store(never)
	return records
}

// LastChannelGone reports whether the topic has had a channel under this leader and has none now.
func (p *Partition) LastChannelGone() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.leadership.active && p.leadership.hadChannels && len(p.channels) == 0
}

// CountStored counts a committed put, in bytes of its bodies, for the statistics.
func (p *Partition) CountStored(bytes int) { p.counts.stored.Add(int64(bytes)) }

// Advance raises the committed end on a leader, and wakes subscribers.
func (p *Partition) Advance(committed ident.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leadership.active || committed.Sequence < p.leadership.committed.Sequence {
		return
	}
	p.leadership.committed = committed
	limit := p.limitLocked()
	for _, c := range p.channels {
		c.advance(limit)
	}
}

// limitLocked is the first sequence that may not be delivered.
func (p *Partition) limitLocked() ident.Sequence {
	if p.pause.on {
		return min(p.pause.barrier, p.leadership.committed.Sequence)
	}
	return p.leadership.committed.Sequence
}

// Channel finds a channel by name.
func (p *Partition) Channel(name string) (*Channel, bool) {
	p.ApplyPending()
	p.mu.RLock()
	defer p.mu.RUnlock()
	c, ok := p.channels[name]
	return c, ok
}

// Channels lists the names, sorted.
func (p *Partition) Channels() []string {
	p.ApplyPending()
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Sorted(maps.Keys(p.channels))
}

// list returns the channels sorted by name.
func (p *Partition) list() []*Channel {
	p.ApplyPending()
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.channels) == 0 {
		return nil
	}
	all := slices.AppendSeq(make([]*Channel, 0, len(p.channels)), maps.Values(p.channels))
	slices.SortFunc(all, func(a, b *Channel) int { return cmp.Compare(a.name, b.name) })
	return all
}

// durable returns the channels that are not ephemeral, sorted by name.
func (p *Partition) durable() []*Channel {
	return slices.DeleteFunc(p.list(), func(c *Channel) bool { return c.ephemeral })
}

func (p *Partition) report(channel, what string, err error) {
	if p.o.Log != nil {
		p.o.Log.WithField("topic", p.topic).WithField("partition", p.id.Number).
			WithField("channel", channel).WithError(err).Error(what)
	}
}
