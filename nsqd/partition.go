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
// Lock order: emit → applying → mu → Channel.mu. The locks of pendingChanges and relocations are
// leaves.
type Partition struct {
	topic  string
	id     ident.Partition
	source Log
	rep    Replicator
	o      Options

	dirty        atomic.Bool  // Flush has a change to replicate
	deadPending  atomic.Bool  // some channel has dead messages for the broker
	due          atomic.Int64 // unix ns: time of the next timer for Expire
	ttl          atomic.Int64 // ms; 0: messages have no time to live
	fence        atomic.Int64 // unix ns: no delivery from then on; 0: no fence
	stored       atomic.Int64 // bytes of bodies committed under this broker since its start
	orderedFence atomic.Int64 // fence of the ordered channels
	attached     atomic.Uint64
	deliveries   atomic.Uint64 // made by this process; it numbers them

	// emit makes computing a delta and passing it to the Replicator one step, so that deltas leave
	// in the order in which they apply.
	emit sync.Mutex

	hasPending atomic.Bool // pending is not empty
	applying   sync.Mutex  // held while pending updates are applied

	mu sync.RWMutex

	// The fields below are guarded by mu.
	pending     []pendingUpdate // of a follower: updates that channels does not show yet
	channels    map[string]*Channel
	leading     bool
	epoch       ident.Epoch
	committed   ident.Position
	paused      bool           // the topic is paused: no message at or above barrier reaches channels
	inherited   ident.Sequence // the committed end when this broker began to lead
	barrier     ident.Sequence // with paused
	keep        ident.Sequence // first sequence that the topic keeps while it has no channels
	hadChannels bool           // a channel existed since this broker began to lead
	led         uint64         // messages committed in earlier leaderships of this process

	pendingChanges pendingChanges
	relocations    Relocations // has its own lock
	work           Works       // has its own lock
}

// NewPartition returns a follower without channels.
func NewPartition(topic string, id ident.Partition, log Log, rep Replicator, o Options) *Partition {
	p := &Partition{
		topic: topic, id: id, source: log, rep: rep, o: o.withDefaults(),
		channels: make(map[string]*Channel),
	}
	p.due.Store(never)
	return p
}

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic }

// ID returns the partition's id.
func (p *Partition) ID() ident.Partition { return p.id }

// Lead starts serving. The caller has seen the commit of the epoch's marker. Messages that are
// neither finished nor deferred can be delivered again, with the attempts from before the
// deliveries that were in flight.
func (p *Partition) Lead(epoch ident.Epoch) {
	p.ApplyPending()
	p.startLeading(epoch)
	p.o.Wake(0) // timers that fired while this broker did not lead fire now
}

// startLeading starts serving. It sends the replicas one change if cursors moved back or an
// ordered channel is gated. If the change is empty, its completion still proves that the
// replicas have the state before it.
func (p *Partition) startLeading(epoch ident.Epoch) {
	p.emit.Lock()
	defer p.emit.Unlock()
	gated, back := p.lead(epoch)
	if gated || len(back) > 0 {
		p.post(&change{done: make(chan struct{}), ungatesOrdered: gated}, back...)
	}
}

// lead reports whether an ordered channel is gated until its state is replicated, and which cursors were
// moved back.
func (p *Partition) lead(epoch ident.Epoch) (gated bool, back []state.Record) {
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	committed := p.source.Committed()
	if !p.leading {
		p.inherited = committed.Sequence
		p.hadChannels = len(p.channels) > 0
	}
	back = p.moveBackLocked(committed)
	p.leading, p.epoch, p.committed = true, epoch, committed
	p.pendingChanges.open()
	for _, c := range p.channels {
		gated = c.gateUntilReplicated() || gated
		c.lead(epoch, p.limitLocked(), now)
	}
	return gated, back
}

// moveBackLocked moves channels that are beyond the end of the log back to the end. A finish is
// accepted only for a committed message, and a leader has all committed messages. The exception is
// a leader that an operator chose after the disks of the other replicas were lost: its channel
// state may be newer than its log. Without the move, the next published messages would count as
// finished, a paused topic would let them through, and relocations would point beyond the end of
// the log.
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
	if p.paused && p.barrier > end {
		back = append(back, state.Record{Kind: state.KindBarrier, Flags: state.FlagPaused, At: end})
	}
	if seqs := p.relocations.Beyond(committed.Offset); len(seqs) > 0 {
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

// ungateOrdered opens the ordered channels that gateUntilReplicated closed.
func (p *Partition) ungateOrdered() {
	now := p.o.Now()
	for _, c := range p.list() {
		c.mu.Lock()
		c.gated = false
		c.offerLocked(now)
		c.mu.Unlock()
	}
}

// Unlead stops serving at once: deliveries are forgotten, Lost of all subscribers is closed, and
// changes that wait fail with ErrNotLeader. Ephemeral channels end.
func (p *Partition) Unlead() { p.unlead() }

// Retire is Unlead of a leader that transfers its leadership: it passes the changes that no delta has
// carried yet to the Replicator first. A finish is either among them, or was refused with ErrNotLeader.
func (p *Partition) Retire() {
	p.emit.Lock()
	defer p.emit.Unlock()
	if records := p.unlead(); len(records) > 0 {
		p.rep.Change(p, state.EncodeDelta(records), 0)
	}
}

// unlead returns the changes of the channels that no delta has carried.
func (p *Partition) unlead() (records []state.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.led, p.leading = p.ledLocked(), false
	p.pendingChanges.close()
	for _, name := range slices.Sorted(maps.Keys(p.channels)) {
		c := p.channels[name]
		made, changed := c.unlead(ErrNotLeader)
		switch {
		case c.ephemeral:
			delete(p.channels, name)
			p.work.Forget(name)
		case changed:
			records = append(records, state.Record{Kind: state.KindProgress, Channel: name, Progress: made})
		}
	}
	p.dirty.Store(false)
	p.due.Store(never)
	return records
}

// LastChannelGone reports whether this broker leads, and the topic had a channel under it and has
// none now. It is false before the first channel.
func (p *Partition) LastChannelGone() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.leading && p.hadChannels && len(p.channels) == 0
}

// CountStored counts a committed put, in bytes of its bodies, for the statistics.
func (p *Partition) CountStored(bytes int) { p.stored.Add(int64(bytes)) }

// Advance raises the committed end on a leader, and wakes subscribers.
func (p *Partition) Advance(committed ident.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading || committed.Sequence < p.committed.Sequence {
		return
	}
	p.committed = committed
	limit := p.limitLocked()
	for _, c := range p.channels {
		c.advance(limit)
	}
}

// limitLocked is the first sequence that may not be delivered.
func (p *Partition) limitLocked() ident.Sequence {
	if p.paused {
		return min(p.barrier, p.committed.Sequence)
	}
	return p.committed.Sequence
}

// Extend moves the fence to a time in unix ns: no channel delivers from then on. A leader without
// contact to its replicas must stop delivering. There is no fence before the first call.
func (p *Partition) Extend(untilNS int64) {
	p.extend(untilNS, &p.fence, &p.orderedFence)
}

// ExtendUnordered is Extend for all channels but the ordered ones.
func (p *Partition) ExtendUnordered(untilNS int64) {
	p.orderedFence.CompareAndSwap(0, untilNS)
	p.extend(untilNS, &p.fence)
}

func (p *Partition) extend(untilNS int64, fences ...*atomic.Int64) {
	now, shared, closed := p.o.Now(), p.o.Fence.Load(), false
	for _, fence := range fences {
		before := max(fence.Swap(untilNS), shared)
		closed = closed || before != 0 && now >= before
	}
	if !closed {
		return
	}
	for _, c := range p.list() { // no subscriber was woken while the fence was closed
		c.mu.Lock()
		c.offerLocked(now)
		c.mu.Unlock()
	}
}

// fenced reports whether the channel's fence is closed at now.
func (c *Channel) fenced(now int64) bool {
	fence := &c.p.fence
	if c.ordered {
		fence = &c.p.orderedFence
	}
	until := max(fence.Load(), c.p.o.Fence.Load())
	return until != 0 && now >= until
}

// Due is the time of the next timer for Expire (unix ns; MaxInt64: none). It may become earlier at
// any time. Reading it is cheap.
func (p *Partition) Due() int64 { return p.due.Load() }

// Dirty reports whether Flush has a change to replicate. Reading it is cheap.
func (p *Partition) Dirty() bool { return p.dirty.Load() }

// lower moves Due to an earlier time and calls Wake.
func (p *Partition) lower(deadline int64) {
	for {
		due := p.due.Load()
		if deadline >= due {
			return
		}
		if p.due.CompareAndSwap(due, deadline) {
			p.o.Wake(deadline)
			return
		}
	}
}

// Expire gives back deliveries that timed out and makes due deferred messages ready. It returns the
// new Due.
func (p *Partition) Expire(nowNS int64) (nextNS int64) {
	p.due.Store(never) // set before the look at the channels: a deadline that lowers it during the look is kept
	for _, c := range p.list() {
		p.lower(c.expire(nowNS))
	}
	return p.due.Load()
}

// dueBatch is the number of messages that become ready or time out under one lock. A million may be
// due at once, and the core loop needs the lock to raise the limit.
const dueBatch = 1024

// fireTimers makes due deferred messages ready, then gives back deliveries that timed out. True:
// there may be more.
func (c *Channel) fireTimers(now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		return false
	}
	n := c.cursor.Deferred.Expire(now, dueBatch)
	for ; n < dueBatch && c.inFlight.next() <= now; n++ {
		c.timeOutLocked(c.inFlight.heap[0], now)
	}
	c.offerLocked(now)
	return n == dueBatch
}

func (c *Channel) timeOutLocked(f *delivery, now int64) {
	if f.sub == &c.deadLetterHold {
		c.retryDeadMoveLocked(f, now)
		return
	}
	c.verbs.Timeouts.Add(1)
	f.sub.revoke(f.seq)
	c.retryLocked(f, 0, now)
}

func (c *Channel) expire(now int64) int64 {
	for c.fireTimers(now) { // one batch at a time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		return never
	}
	c.holdDeadFrontLocked(now)
	if c.stalled <= now {
		c.stalled = 0
	}
	lapse := c.expireOffersLocked(now)
	c.offerLocked(now)
	next := min(lapse, c.inFlight.next(), c.cursor.Deferred.Next())
	if c.stalled != 0 {
		next = min(next, c.stalled)
	}
	return next
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
	all := make([]*Channel, 0, len(p.channels))
	for _, c := range p.channels {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Channel) int { return cmp.Compare(a.name, b.name) })
	return all
}

// report logs a fault of one channel.
func (p *Partition) report(channel, what string, err error) {
	if p.o.Log != nil {
		p.o.Log.WithField("topic", p.topic).WithField("partition", p.id.Number).
			WithField("channel", channel).WithError(err).Error(what)
	}
}
