package nsqd

import (
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/filter"
)

// Channel is one channel of one partition: a cursor on the shared log, and on the leader also the
// messages in flight. It has no goroutine. Subscribers call Pull, Partition.Expire fires its
// timers, and Partition.Flush replicates its changes.
type Channel struct {
	p         *Partition
	name      string
	id        uint64 // distinguishes it from earlier and later channels of the name; 0: ephemeral
	ephemeral bool
	creation  *change // the delta that creates it; nil: not created by this leader

	// mu is never held over I/O, an RPC or a callback.
	mu sync.Mutex

	// The fields below are guarded by mu.
	cursor  cursor.Cursor
	ordered bool
	paused  bool
	serving bool // this broker leads
	closed  bool // deleted
	epoch   ident.Epoch
	before  uint64         // deliveries of the epoch up to this number were made before this leadership
	limit   ident.Sequence // nothing at or above it may be delivered

	// Reading. Every sequence below next is settled or was delivered. The range [next, fetched) was
	// read; its deliverable messages are in ahead.
	next          ident.Sequence
	fetched       ident.Sequence
	prescanned    ident.Sequence // below it every delayed message that is for the channel is in the deferred set
	ahead         window
	redelivery    window // bodies of the first messages of the ready queue
	redeliverNext bool   // the next message comes from the ready queue
	reading       bool   // a goroutine reads the log without the lock
	stalled       int64  // unix ns; no read before then: the last read returned nothing
	readErr       error  // error of the last read
	pacing        pacing // paced catch-up of a channel that is far behind
	// generation rises when a seek or a rewind makes a read in progress void.
	generation uint64

	inFlight    inFlightSet
	replicating int  // ordered: finishes that are not on all in-sync replicas yet
	seeked      bool // there was a seek under this leader: earlier deliveries are forgotten
	// seekEffect receives the effect of the next seek. The operation that makes the seek sets it, under
	// the write lock of the partition.
	seekEffect *SeekEffect
	gated      bool // ordered: closed until the state at the start of this leadership is on all in-sync replicas
	// retrying holds the failed messages of an ordered channel that may have to wait for their next
	// delivery. No message is delivered before they are due: it would overtake them.
	retrying []ident.Sequence

	subs           map[*Subscriber]struct{}
	waitingDirect  subscriberList
	waitingRelayed subscriberList
	offered        int // credit of the subscribers that were woken and have not pulled since
	offeredDirect  int
	offeredAt      int64

	verbs *Verbs // shared by all Channels of this name and partition, one after the other
	// inherited is the number of messages published to the channel before this broker led.
	inherited uint64
	latency   *Latency // nil: not measured

	uses uint64 // subscriptions and operations on the channel under this leader; it only rises

	policy         Policy
	awaitsPolicy   bool             // the broker has not set the channel's policy yet: a filter would be missing
	filter         *filter.Filter   // of the policy; nil: all messages are delivered
	deadLetterHold Subscriber       // holds dead messages in flight until they are moved; never attached
	dead           []ident.Sequence // dead messages that the broker has not fetched yet, the oldest first
}

// IsEphemeral reports whether a channel or topic of this name is ephemeral.
func IsEphemeral(name string) bool { return strings.HasSuffix(name, api.EphemeralSuffix) }

func newChannel(p *Partition, name string, id uint64, ordered bool, at ident.Sequence) *Channel {
	c := &Channel{
		p: p, name: name, id: id, ordered: ordered, ephemeral: IsEphemeral(name),
		cursor:  cursor.New(at),
		subs:    make(map[*Subscriber]struct{}),
		latency: NewLatency(p.o.Percentiles, p.o.PercentileWindowMS*nsPerMS, p.o.Now()),
		verbs:   p.work.Of(name),
	}
	c.cursor.Unreplicated, c.cursor.Deferred.BySeq = c.ephemeral, ordered
	if p.o.Policy != nil {
		c.awaitsPolicy = true
		c.setPolicyLocked(p.o.Policy(name))
	}
	c.deadLetterHold = Subscriber{Wake: make(chan struct{}, 1), channel: c}
	return c
}

// Name is the channel's name.
func (c *Channel) Name() string { return c.name }

// ID distinguishes the channel from earlier and later ones of the same name. It is 0 for an ephemeral channel.
func (c *Channel) ID() uint64 { return c.id }

// Ordered reports whether the channel delivers one message at a time, in order.
func (c *Channel) Ordered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ordered
}

// gateUntilReplicated closes an ordered channel at the start of a leadership, because its state may be missing
// on an in-sync replica. It reports whether the channel is closed; ungateOrdered opens it.
func (c *Channel) gateUntilReplicated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		c.gated = c.ordered && !c.ephemeral
	}
	return c.gated
}

// lead starts serving from the present state.
func (c *Channel) lead(epoch ident.Epoch, limit ident.Sequence, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.serving
	c.serving, c.epoch, c.limit = true, epoch, max(c.limit, limit)
	if again { // the leader took a new epoch after a rollback: deliveries continue
		c.offerLocked(now)
		return
	}
	c.limit, c.seeked, c.before = limit, false, c.p.deliveries.Load()
	if c.p.o.Policy != nil { // a change may not have come here yet
		c.setPolicyLocked(c.p.o.Policy(c.name))
	}
	c.inherited = c.publishedLocked()
	c.rewindLocked()
	c.cursor.ClearDelta()
	c.cursor.Deferred.Expire(now, dueBatch) // Expire makes the rest ready
	c.findRetriesLocked()
	c.holdDeadFrontLocked(now)
	c.p.lower(c.cursor.Deferred.Next())
	c.offerLocked(now)
}

// unlead forgets the messages in flight. In the replicated state they are unfinished, with the
// attempts from before this delivery. It returns the changes that no delta has carried, if any.
func (c *Channel) unlead(why error) (made cursor.Progress, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made, changed = c.cursor.TakeDelta(); !c.serving {
		changed = false
	}
	c.serving = false
	c.closed = c.closed || why == ErrDeleted
	c.replicating = 0
	c.dropInFlightLocked()
	c.cursor.Deferred.Deactivate()
	c.cursor.ClearDelta()
	for s := range c.subs {
		c.forgetLocked(s)
		s.err = why
		close(s.Lost)
		s.wake()
	}
	c.offered, c.offeredDirect = 0, 0
	c.rewindLocked()
	return made, changed
}

// rewindLocked starts reading again at the confirmed sequence. A read in progress becomes void.
func (c *Channel) rewindLocked() {
	c.generation++
	at := c.cursor.Confirmed()
	c.next, c.fetched, c.prescanned = at, at, at
	c.ahead.reset()
	c.redelivery.reset()
	c.stalled, c.readErr, c.dead, c.pacing, c.retrying = 0, nil, nil, pacing{}, nil
}

// dropInFlightLocked revokes all deliveries. They leave no trace in the state.
func (c *Channel) dropInFlightLocked() {
	for len(c.inFlight.heap) > 0 {
		f := c.inFlight.heap[len(c.inFlight.heap)-1]
		c.inFlight.remove(f)
		f.sub.revoke(f.seq)
	}
}

// seek moves the cursor, also back. It forgets all deliveries, settled ranges and deferred
// messages.
func (c *Channel) seek(to ident.Sequence) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seekEffect != nil {
		*c.seekEffect, c.seekEffect = c.effectLocked(to), nil
	}
	c.dropInFlightLocked()
	c.seeked = true
	c.cursor.Seek(to)
	c.rewindLocked()
	for s := range c.subs {
		s.wake() // the revoked deliveries free its credit
	}
	c.offerLocked(now)
}

// SeekEffect is what a seek does to a channel of one partition. Skips and Repeats count messages of
// the log (cursor.Cursor.Moves), as the depth does: also those that are read only to be passed over,
// because they have expired or are for another channel.
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

// pause stops or resumes delivery. Messages in flight may still be finished.
func (c *Channel) pause(on bool) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = on
	c.offerLocked(now)
}

// order makes the channel ordered or unordered from the next delivery on. A channel that becomes
// ordered delivers again when all its messages in flight are finished or given back, and all failed
// messages that wait for their next delivery are due.
func (c *Channel) order(on bool) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordered, c.cursor.Deferred.BySeq, c.pacing.paused = on, on, false
	c.findRetriesLocked()
	c.offerLocked(now)
}

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
	if limit >= c.pacing.resumeAt {
		c.pacing.paused = false
	}
	if c.waitingDirect.empty() && c.waitingRelayed.empty() {
		return
	}
	c.offerLocked(c.p.o.Now())
}

// discardLocked bounds an ephemeral channel: it discards messages beyond EphemeralDepth, as NSQ
// does with a full memory queue.
func (c *Channel) discardLocked(limit ident.Sequence) {
	room := c.p.o.EphemeralDepth - c.depthLocked()
	if keep := c.limit + ident.Sequence(max(room, 0)); keep < limit {
		c.cursor.Settle(cursor.Span{From: keep, To: limit})
	}
}

// depthLocked counts the messages that wait for delivery: those that are not in flight, not
// deferred and not finished.
func (c *Channel) depthLocked() int64 {
	published := int64(c.limit) - int64(c.cursor.Start())
	fresh := c.inFlight.len() - c.cursor.Deferred.InFlight()
	unread := published - int64(c.cursor.SettledCount()) - int64(fresh)
	return max(unread, 0) + int64(c.cursor.Deferred.Ready())
}

// lowWater is the least sequence whose message may still be needed.
func (c *Channel) lowWater() ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lowWaterLocked()
}

func (c *Channel) lowWaterLocked() ident.Sequence {
	isRelocated := func(seq ident.Sequence) bool { return c.p.relocations.Holds(seq, 0) }
	low := c.cursor.Deferred.Low(c.cursor.Confirmed(), isRelocated)
	for _, f := range c.inFlight.heap {
		if f.seq < low && !isRelocated(f.seq) {
			low = f.seq
		}
	}
	return low
}

// availableLocked is the number of messages that may be delivered now.
func (c *Channel) availableLocked(now int64) int {
	if !c.canDeliverLocked(now) || now < c.stalled {
		return 0
	}
	if c.ordered {
		return int(min(c.depthLocked(), 1))
	}
	again := c.cursor.Deferred.Ready()
	return again + c.quotaLocked(int(c.depthLocked())-again)
}

// canDeliverLocked reports whether the channel may deliver a message now, whichever it is. It is false while this broker
// does not lead, while the channel is paused, waits for its policy or is fenced, and while blockedLocked holds it back.
func (c *Channel) canDeliverLocked(now int64) bool {
	if !c.serving || c.paused || c.awaitsPolicy || c.fenced(now) {
		return false
	}
	return !c.blockedLocked()
}

// blockedLocked reports whether an ordered channel waits: for its previous message, for the next delivery of a
// failed message, or until the state at the start of this leadership is replicated.
func (c *Channel) blockedLocked() bool {
	return c.ordered && (c.gated || c.replicating > 0 || c.inFlight.len() > 0 || c.retryingLocked())
}

// changedLocked marks the partition dirty, so that Flush replicates the change.
func (c *Channel) changedLocked() {
	if !c.ephemeral && !c.p.dirty.Swap(true) {
		c.p.o.Wake(0)
	}
}
