package nsqd

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Partition is all channels of one partition on this broker. On a follower it
// only holds their state (Apply, Replace, Snapshot); Lead makes it serve.
//
// Lock order: emit → catching → mu → Channel.mu; waiting.mu is a leaf.
type Partition struct {
	topic  string
	id     ident.Partition
	source Log
	rep    Replicator
	o      Options

	dirty  atomic.Bool  // Flush has something to say
	graves atomic.Bool  // channels have dead messages
	due    atomic.Int64 // unix ns: Expire has something to do
	ttl    atomic.Int64 // ms; 0 = messages live for ever
	until  atomic.Int64 // unix ns: deliver nothing from then on; 0 = no fence
	stored atomic.Int64 // bytes of bodies committed under this broker since its start
	strict atomic.Int64 // the same for ordered channels

	// emit makes working out a delta and handing it to the Replicator one step, so
	// that deltas leave in the order in which they apply.
	emit sync.Mutex

	behind   atomic.Bool // told is not empty
	catching sync.Mutex  // held while what was told is taken over

	mu sync.RWMutex

	// All below is guarded by mu.
	told      []told // of a follower: what channels does not show yet
	channels  map[string]*Channel
	leading   bool
	epoch     ident.Epoch
	committed ident.Position
	paused    bool           // topic pause: nothing at or above barrier reaches channels
	inherited ident.Sequence // the committed end when this broker began to lead
	barrier   ident.Sequence // with paused
	keep      ident.Sequence // what the topic keeps while it has no channels
	peopled   bool           // there was a channel since this broker leads

	waiting waiting
	carried carried // locks itself
}

// NewPartition makes a follower without channels.
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

// ID names the partition.
func (p *Partition) ID() ident.Partition { return p.id }

// Lead starts serving: the marker of the epoch is committed. What is unfinished
// and not deferred can be delivered again, with the attempts it had before the
// deliveries that were under way.
func (p *Partition) Lead(epoch ident.Epoch) {
	p.CatchUp()
	p.takeOffice(epoch)
	p.o.Wake(0) // what was due when this broker did not lead is due now
}

// takeOffice begins to serve. What the replicas must know first goes to them as one
// change: if it says nothing, then only that they have the state before it, too.
func (p *Partition) takeOffice(epoch ident.Epoch) {
	p.emit.Lock()
	defer p.emit.Unlock()
	inherits, back := p.lead(epoch)
	if inherits || len(back) > 0 {
		p.post(&change{done: make(chan struct{}), opens: inherits}, back...)
	}
}

// lead reports whether ordered channels wait for what they inherit, and how channels
// were moved back.
func (p *Partition) lead(epoch ident.Epoch) (inherits bool, back []record) {
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	committed := p.source.Committed()
	if !p.leading {
		p.inherited = committed.Sequence
		p.peopled = len(p.channels) > 0
	}
	back = p.moveBackLocked(committed)
	p.leading, p.epoch, p.committed = true, epoch, committed
	p.waiting.open()
	for _, c := range p.channels {
		inherits = c.inherit() || inherits
		c.lead(epoch, p.limitLocked(), now)
	}
	return inherits, back
}

// moveBackLocked moves channels that are beyond the end of the log back to it. Only
// messages that are committed are ever done with, and a leader has them all, but for
// one that an operator chose after the others' disks were lost: it may know more of the
// channels than of the messages. What is put next is not what they are done with, nor
// what a pause of the topic lets through, and what was carried to places beyond the end
// was not.
func (p *Partition) moveBackLocked(committed ident.Position) (back []record) {
	end := committed.Sequence
	for name, c := range p.channels {
		c.mu.Lock()
		if c.cursor.end() > end {
			kept := c.cursor.whole().below(end)
			back = append(back, record{kind: kindSeek, channel: name, at: kept.confirmed},
				record{kind: kindProgress, channel: name, progress: kept})
		}
		c.mu.Unlock()
	}
	if p.paused && p.barrier > end {
		back = append(back, record{kind: kindBarrier, flags: flagPaused, at: end})
	}
	if seqs := p.carried.beyond(committed.Offset); len(seqs) > 0 {
		back = append(back, record{kind: kindCarry, offset: nowhere, seqs: seqs})
	}
	if p.keep > end {
		back = append(back, record{kind: kindKeep, flags: flagBack, at: end})
	}
	for _, r := range back {
		p.applyLocked(r)
	}
	return back
}

// openOrdered lets the ordered channels serve.
func (p *Partition) openOrdered() {
	now := p.o.Now()
	for _, c := range p.list() {
		c.mu.Lock()
		c.inheriting = false
		c.offerLocked(now)
		c.mu.Unlock()
	}
}

// Unlead stops serving at once: deliveries are forgotten, Lost of all
// subscribers is closed, changes that wait fail with ErrNotLeader. Ephemeral
// channels end.
func (p *Partition) Unlead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leading = false
	p.waiting.close()
	for name, c := range p.channels {
		c.unlead(ErrNotLeader)
		if c.ephemeral {
			delete(p.channels, name)
		}
	}
	p.dirty.Store(false)
	p.due.Store(never)
}

// Deserted reports whether the last channel has gone, here where it is led. A
// partition that nobody has consumed yet is not.
func (p *Partition) Deserted() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.leading && p.peopled && len(p.channels) == 0
}

// Stored counts a committed put, in bytes of its bodies.
func (p *Partition) Stored(bytes int) { p.stored.Add(int64(bytes)) }

// Advance tells a leader that the committed end has moved; subscribers wake.
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

// limitLocked is where deliveries end.
func (p *Partition) limitLocked() ident.Sequence {
	if p.paused {
		return min(p.barrier, p.committed.Sequence)
	}
	return p.committed.Sequence
}

// Extend lets deliveries go on until then (unix ns) and no longer: a leader that
// hears nothing from its replicas must fall silent. Until the first call there is
// no such fence.
func (p *Partition) Extend(untilNS int64) {
	p.extend(untilNS, &p.until, &p.strict)
}

// ExtendUnordered is Extend for all but the ordered channels.
func (p *Partition) ExtendUnordered(untilNS int64) {
	p.strict.CompareAndSwap(0, untilNS)
	p.extend(untilNS, &p.until)
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
	for _, c := range p.list() { // nobody was woken meanwhile
		c.mu.Lock()
		c.offerLocked(now)
		c.mu.Unlock()
	}
}

// fenced reports whether a channel must be silent.
func (c *Channel) fenced(now int64) bool {
	fence := &c.p.until
	if c.ordered {
		fence = &c.p.strict
	}
	until := max(fence.Load(), c.p.o.Fence.Load())
	return until != 0 && now >= until
}

// Due is when Expire has something to do next (unix ns, MaxInt64 = never). It may
// become earlier at any time; reading it is cheap.
func (p *Partition) Due() int64 { return p.due.Load() }

// Dirty reports whether Flush has something to say. Reading it is cheap.
func (p *Partition) Dirty() bool { return p.dirty.Load() }

// lower moves Due to an earlier time.
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

// Expire takes back deliveries that timed out and makes deferred messages
// deliverable whose time has come. It returns the new Due.
func (p *Partition) Expire(nowNS int64) (nextNS int64) {
	p.due.Store(never) // before looking: what lowers it meanwhile is kept
	for _, c := range p.list() {
		p.lower(c.expire(nowNS))
	}
	return p.due.Load()
}

// dueBatch is how many messages become ready or time out under one lock: a million
// may be due at once, and the core loop wants the lock to raise the limit.
const dueBatch = 1024

// ripen makes delayed messages ready, then takes back what timed out; true: there
// may be more.
func (c *Channel) ripen(now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		return false
	}
	n := c.cursor.aside.expire(now, dueBatch)
	for ; n < dueBatch && c.flights.next() <= now; n++ {
		c.timeOutLocked(c.flights.heap[0], now)
	}
	c.offerLocked(now)
	return n == dueBatch
}

func (c *Channel) timeOutLocked(f *flight, now int64) {
	if f.sub == &c.grave {
		c.hauntLocked(f, now)
		return
	}
	c.timeouts++
	f.sub.tookBack(f.seq)
	c.retryLocked(f, 0, now)
}

func (c *Channel) expire(now int64) int64 {
	for c.ripen(now) { // a batch after the other
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		return never
	}
	c.buryFrontLocked(now)
	if c.stalled <= now {
		c.stalled = 0
	}
	lapse := c.lapseLocked(now)
	c.offerLocked(now)
	next := min(lapse, c.flights.next(), c.cursor.aside.next())
	if c.stalled != 0 {
		next = min(next, c.stalled)
	}
	return next
}

// Channel finds a channel by name.
func (p *Partition) Channel(name string) (*Channel, bool) {
	p.CatchUp()
	p.mu.RLock()
	defer p.mu.RUnlock()
	c, ok := p.channels[name]
	return c, ok
}

// Channels lists the names, sorted.
func (p *Partition) Channels() []string {
	p.CatchUp()
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Sorted(maps.Keys(p.channels))
}

// list gives the channels sorted by name.
func (p *Partition) list() []*Channel {
	p.CatchUp()
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

// LowWater is the least sequence that any channel may still need of the log,
// deferred messages included unless they were carried: what lies below may go. Ephemeral channels hold nothing. A
// topic without channels keeps everything since its last channel was deleted, but
// for what Forget gave up.
func (p *Partition) LowWater() ident.Sequence {
	p.CatchUp()
	p.mu.RLock()
	defer p.mu.RUnlock()
	low, durable := MaxSequence, false
	for _, c := range p.channels {
		if c.ephemeral {
			continue
		}
		durable = true
		low = min(low, c.lowWater())
	}
	if !durable {
		return p.keep
	}
	return low
}

// report logs a fault of one channel.
func (p *Partition) report(channel, what string, err error) {
	if p.o.Log != nil {
		p.o.Log.WithField("topic", p.topic).WithField("partition", p.id.Number).
			WithField("channel", channel).WithError(err).Error(what)
	}
}
