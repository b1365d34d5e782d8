package nsqd

import (
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Channel is one channel of one partition: a cursor on the shared log, and on
// the leader also what is in flight. It has no goroutine: subscribers pull,
// Partition.Expire drives its deadlines, Partition.Flush its replication.
type Channel struct {
	p         *Partition
	name      string
	ephemeral bool
	born      *change // its creation; nil = long ago

	// mu is never held over I/O, an RPC or a callback.
	mu sync.Mutex

	// All below is guarded by mu.
	cursor  cursor
	ordered bool
	paused  bool
	serving bool // this broker leads
	closed  bool // deleted
	epoch   ident.Epoch
	limit   ident.Sequence // nothing at or above it may be delivered

	// Reading. Every sequence below next was settled or delivered; [next,
	// fetched) was read, and what is deliverable of it lies in ahead.
	next    ident.Sequence
	fetched ident.Sequence
	scouted ident.Sequence // below it all delayed messages are put aside
	ahead   window
	redo    window // bodies of the front of the ready queue
	redoing bool   // it is the ready queue's turn
	reading bool   // somebody reads the log without the lock
	stalled int64  // unix ns; do not read before: the last try gave nothing
	readErr error  // of the last try
	rests   rests  // of a channel that is far behind
	// generation counts what makes a read that is under way void.
	generation uint64

	flights    flights
	confirming int  // ordered: finishes that are not on all replicas yet
	moved      bool // by a seek of this leader: what was delivered before it is forgotten
	inheriting bool // ordered: what this leader began with is not on all replicas yet

	subs          map[*Subscriber]struct{}
	hungryDirect  subscriberList
	hungryRelayed subscriberList
	offered       int // credit of those who were woken and have not pulled since
	offeredDirect int
	offeredAt     int64

	skipped  uint64 // dropped by retention before they were read
	requeues uint64
	timeouts uint64
	// inherited is what was published to it before this broker led.
	inherited uint64
	latency   *latency // nil = not measured

	policy Policy
	grave  Subscriber       // holds the dead messages; never attached
	dead   []ident.Sequence // of them, not handed to the broker yet, the oldest first
}

// IsEphemeral reports whether a channel or topic of this name is ephemeral.
func IsEphemeral(name string) bool { return strings.HasSuffix(name, edge.EphemeralSuffix) }

func newChannel(p *Partition, name string, ordered bool, at ident.Sequence) *Channel {
	c := &Channel{
		p: p, name: name, ordered: ordered, ephemeral: IsEphemeral(name),
		cursor:  cursorAt(at),
		subs:    make(map[*Subscriber]struct{}),
		latency: newLatency(p.o),
	}
	c.cursor.silent, c.cursor.aside.bySeq = c.ephemeral, ordered
	if p.o.Policy != nil {
		c.policy = p.o.Policy(name)
	}
	c.grave = Subscriber{Wake: make(chan struct{}, 1), channel: c}
	return c
}

// Name is the channel's name.
func (c *Channel) Name() string { return c.name }

// Ordered reports whether the channel delivers one message at a time, in order.
func (c *Channel) Ordered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ordered
}

// inherit shuts an ordered channel that begins to serve from a state which not
// all replicas may have.
func (c *Channel) inherit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		c.inheriting = c.ordered && !c.ephemeral
	}
	return c.inheriting
}

// lead starts serving from the state.
func (c *Channel) lead(epoch ident.Epoch, limit ident.Sequence, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.serving
	c.serving, c.epoch, c.limit = true, epoch, max(c.limit, limit)
	if again { // the leader took a new epoch after a rollback: deliveries go on
		c.offerLocked(now)
		return
	}
	c.limit, c.moved = limit, false
	c.inherited = c.publishedLocked()
	c.rewindLocked()
	c.cursor.clean()
	c.cursor.aside.expire(now, dueBatch) // the rest is Expire's
	c.buryFrontLocked(now)
	c.p.lower(c.cursor.aside.next())
	c.offerLocked(now)
}

// unlead forgets what is in flight: for the state it is unfinished, and its
// attempts are those before this delivery.
func (c *Channel) unlead(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = false
	c.closed = c.closed || why == ErrDeleted
	c.confirming = 0
	c.dropFlightsLocked()
	c.cursor.aside.ground()
	c.cursor.clean()
	for s := range c.subs {
		c.forgetLocked(s)
		s.err = why
		close(s.Lost)
		s.wake()
	}
	c.offered, c.offeredDirect = 0, 0
	c.rewindLocked()
}

// rewindLocked starts reading again at the confirmed end; a read under way is void.
func (c *Channel) rewindLocked() {
	c.generation++
	c.next, c.fetched, c.scouted = c.cursor.confirmed, c.cursor.confirmed, c.cursor.confirmed
	c.ahead.reset()
	c.redo.reset()
	c.stalled, c.readErr, c.dead, c.rests = 0, nil, nil, rests{}
}

// dropFlightsLocked takes all deliveries back without a trace in the state.
func (c *Channel) dropFlightsLocked() {
	for len(c.flights.heap) > 0 {
		f := c.flights.heap[len(c.flights.heap)-1]
		c.flights.remove(f)
		f.sub.tookBack(f.seq)
	}
}

// seek moves the cursor, also back; all deliveries and exceptions are forgotten.
func (c *Channel) seek(to ident.Sequence) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropFlightsLocked()
	c.moved = true
	c.cursor.seek(to)
	c.rewindLocked()
	for s := range c.subs {
		s.wake() // what was in flight to it frees credit
	}
	c.offerLocked(now)
}

// pause stops or resumes delivery; what is in flight may be finished.
func (c *Channel) pause(on bool) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = on
	c.offerLocked(now)
}

// order makes the channel ordered or unordered from the next delivery on; what
// is in flight when it becomes ordered must come back first.
func (c *Channel) order(on bool) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordered, c.cursor.aside.bySeq, c.rests.on = on, on, false
	c.offerLocked(now)
}

// advance raises the limit and wakes whom that serves.
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
	if limit >= c.rests.until {
		c.rests.on = false
	}
	if c.hungryDirect.empty() && c.hungryRelayed.empty() {
		return
	}
	c.offerLocked(c.p.o.Now())
}

// discardLocked bounds an ephemeral channel: what comes on top of a full one is
// discarded, as NSQ does with its memory queue.
func (c *Channel) discardLocked(limit ident.Sequence) {
	room := c.p.o.EphemeralDepth - c.depthLocked()
	if keep := c.limit + ident.Sequence(max(room, 0)); keep < limit {
		c.cursor.settle(span{keep, limit})
	}
}

// depthLocked counts what waits to be delivered: not in flight, not deferred, not
// finished.
func (c *Channel) depthLocked() int64 {
	published := int64(c.limit) - int64(c.cursor.start)
	fresh := c.flights.len() - c.cursor.aside.inFlight()
	unread := published - int64(c.cursor.settledCount()) - int64(fresh)
	return max(unread, 0) + int64(c.cursor.aside.due)
}

// lowWater is the least sequence whose message may still be needed.
func (c *Channel) lowWater() ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	isCarried := func(seq ident.Sequence) bool { return c.p.carried.holds(seq, 0) }
	low := c.cursor.aside.low(c.cursor.confirmed, isCarried)
	for _, f := range c.flights.heap {
		if f.seq < low && !isCarried(f.seq) {
			low = f.seq
		}
	}
	return low
}

// availableLocked is how many messages may be delivered now.
func (c *Channel) availableLocked(now int64) int {
	if !c.opensLocked(now) || now < c.stalled {
		return 0
	}
	if c.ordered {
		return int(min(c.depthLocked(), 1))
	}
	again := c.cursor.aside.due
	return again + c.rationLocked(int(c.depthLocked())-again)
}

// opensLocked reports whether anything may be delivered at all.
func (c *Channel) opensLocked(now int64) bool {
	if !c.serving || c.paused || c.fenced(now) {
		return false
	}
	return !c.busyLocked()
}

// busyLocked: an ordered channel waits for the message before, or for what it
// inherited.
func (c *Channel) busyLocked() bool {
	return c.ordered && (c.inheriting || c.confirming > 0 || c.flights.len() > 0)
}

// changedLocked notes that Flush has something to say.
func (c *Channel) changedLocked() {
	if !c.ephemeral && !c.p.dirty.Swap(true) {
		c.p.o.Wake(0)
	}
}
