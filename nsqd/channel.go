package nsqd

import (
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Channel is one channel of one partition: a cursor on the shared log, and on the leader also the messages in flight.
// Subscribers call Pull, Partition.Expire fires its timers, and Partition.Flush replicates its changes.
type Channel struct {
	p         *Partition
	name      string
	id        uint64 // distinguishes it from earlier and later channels of the same name; 0: ephemeral
	ephemeral bool
	creation  *pendingChange // creates it on the replicas; nil: not created by this leader

	mu sync.Mutex // guards the fields below; never held over I/O, an RPC or a callback

	cursor   cursor.Cursor
	serving  serving
	paused   bool
	limit    ident.Sequence // nothing at or above it may be delivered
	policy   policyInForce
	order    order
	reader   reader
	inFlight inFlightSet
	dead     deadMessages
	subs     subscribers
	counts   channelCounts
	// seekEffect, set under the write lock of the partition, receives the effect of the next seek.
	seekEffect *SeekEffect
}

// serving is the state of a channel under the leadership of this broker.
type serving struct {
	leads     bool
	deleted   bool
	epoch     ident.Epoch
	delivered uint64 // deliveries of the epoch up to this number were made before this leadership
	inherited uint64 // messages published to the channel before this leadership
	seeked    bool   // a seek happened under this leadership, so earlier deliveries are forgotten
}

// reader reads the log ahead of the deliveries. Every sequence below next is settled or was delivered.
// The range [next, fetched) was read; its deliverable messages are in ahead.
type reader struct {
	next          ident.Sequence
	fetched       ident.Sequence
	prescanned    ident.Sequence // every delayed message below it that is for the channel is in the deferred set
	ahead         window
	redelivery    window // the first messages of the ready queue
	redeliverNext bool   // the next message comes from the ready queue
	active        bool   // a goroutine reads the log without the lock
	retryAt       int64  // unix ns; no read before then: the last one returned nothing
	err           error  // of the last read
	pacing        pacing
	generation    uint64 // incremented when a seek or a rewind invalidates a read in progress
}

// channelCounts are the statistics of a channel under this leader.
type channelCounts struct {
	*verbCounts          // shared by all successive Channels of this name in the partition
	latency     *latency // nil: not measured
	uses        uint64   // number of subscriptions and operations; never falls
}

// IsEphemeral reports whether a channel or topic of this name is ephemeral.
func IsEphemeral(name string) bool { return strings.HasSuffix(name, api.EphemeralSuffix) }

func newChannel(p *Partition, name string, id uint64, ordered bool, at ident.Sequence) *Channel {
	c := &Channel{
		p: p, name: name, id: id, ephemeral: IsEphemeral(name),
		cursor: cursor.New(at),
		order:  order{on: ordered},
		subs:   subscribers{all: make(map[*Subscriber]struct{})},
		counts: channelCounts{
			verbCounts: p.work.of(name),
			latency:    newLatency(p.o.Percentiles, p.o.PercentileWindowMS*nsPerMS, p.o.Now()),
		},
	}
	c.cursor.Unreplicated, c.cursor.Deferred.BySeq = c.ephemeral, ordered
	if p.o.Policy != nil {
		c.policy.missing = true
		c.setPolicyLocked(p.o.Policy(name))
	}
	c.dead.hold = Subscriber{Wake: make(chan struct{}, 1), channel: c}
	return c
}

// Name is the channel's name.
func (c *Channel) Name() string { return c.name }

// ID distinguishes the channel from earlier and later ones of the same name. It is 0 for an ephemeral channel.
func (c *Channel) ID() uint64 { return c.id }

// update changes the channel under its lock, and wakes subscribers for the messages that became available.
func (c *Channel) update(change func(now int64)) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	change(now)
	c.offerLocked(now)
}

// Ordered reports whether the channel delivers one message at a time, in order.
func (c *Channel) Ordered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.on
}

// lead starts serving in an epoch, from the channel's current state. Nothing at or above limit is delivered.
func (c *Channel) lead(epoch ident.Epoch, limit ident.Sequence, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving.leads { // the leader began a new epoch after a rollback, so deliveries continue
		c.serving.epoch, c.limit = epoch, max(c.limit, limit)
		c.offerLocked(now)
		return
	}
	c.limit = limit
	if c.p.o.Policy != nil { // a change of the policy may not have arrived here yet
		c.setPolicyLocked(c.p.o.Policy(c.name))
	}
	if epoch != c.serving.epoch {
		c.inFlight.withdrawn = nil
	}
	c.serving = serving{
		leads: true, deleted: c.serving.deleted, epoch: epoch,
		delivered: c.p.counts.deliveries.Load(), inherited: c.publishedLocked(),
	}
	c.rewindLocked()
	c.cursor.ClearDelta()
	c.cursor.Deferred.Expire(now, dueBatch) // Partition.Expire makes the remaining ones ready
	c.findRetriesLocked()
	c.holdDeadFrontLocked(now)
	c.p.lower(c.cursor.Deferred.Next())
	c.offerLocked(now)
}

// unlead forgets the messages in flight. In the replicated state they are unfinished, and their attempts do not include
// this delivery. It returns the changes that no delta contains yet.
func (c *Channel) unlead(why error) (made cursor.Progress, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made, changed = c.cursor.TakeDelta(); !c.serving.leads {
		changed = false
	}
	c.serving.leads = false
	c.serving.deleted = c.serving.deleted || why == ErrDeleted
	c.order.replicating = 0
	c.dropInFlightLocked()
	c.cursor.Deferred.Deactivate()
	for s := range c.subs.all {
		c.forgetLocked(s)
		s.err = why
		close(s.Lost)
		s.wake()
	}
	c.subs.offered, c.subs.offeredDirect = 0, 0
	c.rewindLocked()
	return made, changed
}

// rewindLocked starts reading again at the confirmed sequence. A read in progress is invalidated.
func (c *Channel) rewindLocked() {
	at := c.cursor.Confirmed()
	c.reader.ahead.reset()
	c.reader.redelivery.reset()
	c.reader = reader{
		next: at, fetched: at, prescanned: at, ahead: c.reader.ahead, redelivery: c.reader.redelivery,
		redeliverNext: c.reader.redeliverNext, active: c.reader.active, generation: c.reader.generation + 1,
	}
	c.dead.pending, c.order.retrying = nil, nil
}

// dropInFlightLocked revokes all deliveries. They leave no record in the state.
func (c *Channel) dropInFlightLocked() {
	for len(c.inFlight.heap) > 0 {
		f := c.inFlight.heap[len(c.inFlight.heap)-1]
		c.inFlight.remove(f)
		f.sub.revoke(f.seq)
	}
}

// seek moves the cursor, forward or back. It forgets all deliveries, settled ranges and deferred messages.
func (c *Channel) seek(to ident.Sequence) {
	c.update(func(int64) {
		if c.seekEffect != nil {
			*c.seekEffect, c.seekEffect = c.effectLocked(to), nil
		}
		c.dropInFlightLocked()
		c.serving.seeked = true
		c.cursor.Seek(to)
		c.rewindLocked()
		for s := range c.subs.all {
			s.wake() // the revoked deliveries release its credit
		}
	})
}

// SeekEffect is the effect of a seek on a channel of one partition. Skips and Repeats count messages of the log
// (cursor.Cursor.Moves), as the depth does, including messages that expired or are for another channel.
type SeekEffect struct {
	From    ident.Sequence // the confirmed sequence before
	To      ident.Sequence // and after
	Skips   uint64         // unfinished, and no longer delivered
	Repeats uint64         // finished or passed before, and delivered again
}

func (c *Channel) effectLocked(to ident.Sequence) SeekEffect {
	e := SeekEffect{From: c.cursor.Confirmed(), To: to}
	e.Skips, e.Repeats = c.cursor.Moves(to, c.p.source.Start().Sequence)
	return e
}

// setPaused stops or resumes delivery. Messages in flight may still be finished.
func (c *Channel) setPaused(on bool) { c.update(func(int64) { c.paused = on }) }

// advance raises the limit and wakes the subscribers that can use it.
func (c *Channel) advance(limit ident.Sequence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit <= c.limit {
		return
	}
	if c.ephemeral {
		c.discardLocked(limit)
	}
	c.limit = limit
	if limit >= c.reader.pacing.resumeAt {
		c.reader.pacing.paused = false
	}
	if c.subs.waiting() {
		c.offerLocked(c.p.o.Now())
	}
}

// discardLocked discards messages of an ephemeral channel beyond EphemeralDepth, as NSQ does with a full memory queue.
func (c *Channel) discardLocked(limit ident.Sequence) {
	room := c.p.o.EphemeralDepth - c.depthLocked()
	if keep := c.limit + ident.Sequence(max(room, 0)); keep < limit {
		c.cursor.Settle(cursor.Span{From: keep, To: limit})
	}
}

// depthLocked counts the messages that wait for delivery: not in flight, not deferred and not finished.
func (c *Channel) depthLocked() int64 {
	published := int64(c.limit) - int64(c.cursor.Start())
	fresh := c.inFlight.len() - c.cursor.Deferred.InFlight()
	unread := published - int64(c.cursor.SettledCount()) - int64(fresh)
	return max(unread, 0) + int64(c.cursor.Deferred.Ready())
}

// lowWaterLocked is the lowest sequence whose message may still be needed at its original position.
func (c *Channel) lowWaterLocked() ident.Sequence {
	isRelocated := func(seq ident.Sequence) bool { return c.p.relocations.holds(seq, 0) }
	low := c.cursor.Deferred.Low(c.cursor.Confirmed(), isRelocated)
	for _, f := range c.inFlight.heap {
		if f.seq < low && !isRelocated(f.seq) {
			low = f.seq
		}
	}
	return low
}

// changedLocked marks the partition dirty, so that Flush replicates the change.
func (c *Channel) changedLocked() {
	if !c.ephemeral && !c.p.timers.dirty.Swap(true) {
		c.p.o.Wake(0)
	}
}
