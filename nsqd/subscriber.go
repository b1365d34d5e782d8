package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Subscriber is one consumer of one channel of one partition: a client's
// connection here, or a relay for another broker's clients. The exported fields
// are set before Attach and not changed afterwards.
type Subscriber struct {
	// Wake receives when Pull may find something. Attach makes one of capacity 1
	// if it is nil; several subscribers may share one.
	Wake chan struct{}
	// Woken, if set, is called instead, with the channel locked: it must neither
	// block nor call the channel.
	Woken func()
	// Lost is closed when the channel stops serving; Err says why. Attach makes
	// it if it is nil. It must not be shared.
	Lost chan struct{}
	// Client describes the connections behind it for statistics; nil = none. It
	// is called without locks, from any goroutine.
	Client func() []edge.ClientStats
	// MsgTimeoutMS is how long a delivery may stay unfinished; 0 = the default.
	MsgTimeoutMS int64
	// SampleRate: 0 = off; otherwise a message is kept if rand(0..99) <= rate and
	// is discarded for the whole channel if not (NSQ's rule).
	SampleRate int32
	// Direct: the client is connected here. Relayed subscribers come after it.
	Direct bool

	// Guarded by Channel.mu from Attach on.
	channel    *Channel // nil before Attach and after it ended
	err        error
	flights    *flight // in flight to it, linked
	inFlight   int
	want       int         // unmet credit of its last Pull
	hungry     bool        // in one of the channel's lists of hungry ones
	hungryNext *Subscriber // in that list
	hungryPrev *Subscriber
	offered    bool // woken, has not pulled since
	taken      []ident.Sequence
}

// maxTaken bounds what is remembered for a subscriber that does not ask; it is
// above NSQ's largest RDY.
const maxTaken = 4096

// wake signals without blocking: one pending signal is as good as ten.
func (s *Subscriber) wake() {
	if s.Woken != nil {
		s.Woken()
		return
	}
	select {
	case s.Wake <- struct{}{}:
	default:
	}
}

// tookBack notes that a delivery is not the subscriber's own any more; it wakes
// because there is credit again.
func (s *Subscriber) tookBack(seq ident.Sequence) {
	if len(s.taken) < maxTaken {
		s.taken = append(s.taken, seq)
	}
	s.wake()
}

// Attach makes s a subscriber of the channel. Its first Pull is due at once.
// ErrNotLeader, ErrDeleted, ErrAttached.
func (c *Channel) Attach(s *Subscriber) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrDeleted
	case !c.serving:
		return ErrNotLeader
	case s.channel != nil || s.err != nil:
		return ErrAttached
	}
	if s.Wake == nil && s.Woken == nil {
		s.Wake = make(chan struct{}, 1)
	}
	if s.Lost == nil {
		s.Lost = make(chan struct{})
	}
	s.channel = c
	c.subs[s] = struct{}{}
	s.wake()
	return nil
}

// Detach ends the subscription. requeue: what is in flight to it goes back at
// once; otherwise it waits for its timeout. The last one to leave an ephemeral
// channel takes it along. A subscriber cannot be attached again.
func (c *Channel) Detach(s *Subscriber, requeue bool) {
	if requeue {
		c.detach(s, c.backLocked)
	} else {
		c.detach(s, c.flights.disown)
	}
}

// Withdraw is Detach when the client is not the cause: what is in flight goes
// back at once, and this delivery does not count as an attempt.
func (c *Channel) Withdraw(s *Subscriber) { c.detach(s, c.undoLocked) }

// Undo takes back a delivery that the client has not seen: at once, and it does
// not count as an attempt. Errors as Finish.
func (c *Channel) Undo(s *Subscriber, seq ident.Sequence) error {
	return c.withOwned(s, seq, func(f *flight, now int64) {
		c.undoLocked(f)
		c.offerLocked(now)
	})
}

// Return gives a delivery back, as Detach does, whose client has left. Errors as Finish.
func (c *Channel) Return(s *Subscriber, seq ident.Sequence) error {
	return c.withOwned(s, seq, func(f *flight, now int64) {
		c.backLocked(f)
		c.offerLocked(now)
	})
}

// Disown lets a delivery, whose client has left, wait for its timeout. Errors as Finish.
func (c *Channel) Disown(s *Subscriber, seq ident.Sequence) error {
	return c.withOwned(s, seq, func(f *flight, _ int64) { c.flights.disown(f) })
}

// undoLocked takes a delivery back as if it had not been.
func (c *Channel) undoLocked(f *flight) {
	c.flights.remove(f)
	c.cursor.putReady(f.seq, max(f.attempts, 1)-1)
	c.changedLocked()
}

// detach ends a subscription; give says what becomes of its deliveries.
func (c *Channel) detach(s *Subscriber, give func(*flight)) {
	now := c.p.o.Now()
	c.mu.Lock()
	if s.channel != c {
		c.mu.Unlock()
		return
	}
	for s.flights != nil {
		give(s.flights)
	}
	c.answeredLocked(s)
	c.forgetLocked(s)
	s.err = ErrAttached
	last := c.ephemeral && len(c.subs) == 0
	c.offerLocked(now)
	c.mu.Unlock()
	if last {
		c.p.dropEphemeral(c)
	}
}

// forgetLocked takes s out of everything but the flights.
func (c *Channel) forgetLocked(s *Subscriber) {
	if s.hungry {
		c.listLocked(s).remove(s)
	}
	s.channel, s.want, s.offered = nil, 0, false
	delete(c.subs, s)
}

// Consumers is the number of subscribers.
func (c *Channel) Consumers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.subs)
}

// InFlight is the number of deliveries to s that are neither finished, requeued,
// nor timed out.
func (c *Channel) InFlight(s *Subscriber) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.inFlight
}

// Err says why s.Lost is closed: ErrNotLeader or ErrDeleted.
func (c *Channel) Err(s *Subscriber) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.err
}

// TakenBack appends to dst the sequences that the channel took back from s (timed
// out, emptied) since the last call. s.Wake tells.
func (c *Channel) TakenBack(s *Subscriber, dst []ident.Sequence) []ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	dst = append(dst, s.taken...)
	s.taken = s.taken[:0]
	return dst
}
