package nsqd

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Subscriber is one consumer of one channel of one partition: a client's connection to this broker,
// or a relay for the clients of another broker. The exported fields are set before Attach and not
// changed afterwards.
type Subscriber struct {
	// Wake receives when Pull may find messages. Attach makes one of capacity 1 if it is nil.
	// Several subscribers may share one.
	Wake chan struct{}
	// Woken, if set, is called instead of a send to Wake. The channel is locked: Woken must neither
	// block nor call the channel.
	Woken func()
	// Lost is closed when the channel stops serving; Err returns the reason. Attach makes it if it
	// is nil. It must not be shared.
	Lost chan struct{}
	// Client describes the connections of the subscriber for statistics; nil: none. It is called
	// without locks, from any goroutine.
	Client func() []api.ClientStats
	// Settled, if set, is called when a receipt finishes or requeues a delivery to the subscriber. The channel
	// is locked, as for Woken.
	Settled func(finished bool)
	// MsgTimeoutMS is the time that a delivery may stay unfinished; 0: the default.
	MsgTimeoutMS int64
	// SampleRate, if not 0, keeps a message if rand(0..99) <= rate, and otherwise discards it for
	// the whole channel (NSQ's rule).
	SampleRate int32
	// Direct means that the client is connected to this broker. Messages are offered to direct
	// subscribers before relayed ones.
	Direct bool
	// PullBytes is the size at which a Pull stops; 0: 1 MiB.
	PullBytes int

	// Guarded by Channel.mu from Attach on.
	channel     *Channel // nil before Attach and after the subscription ended
	err         error
	deliveries  *delivery // in flight to it, linked
	held        int
	want        int         // credit that its last Pull could not use
	waiting     bool        // in one of the channel's lists of waiting subscribers
	waitingNext *Subscriber // in that list
	waitingPrev *Subscriber
	offered     bool // woken, has not pulled since
	revoked     []ident.Sequence
}

// maxRevoked bounds the revoked deliveries remembered for a subscriber that does not fetch them,
// and the dead messages of one fetch. It is above NSQ's largest RDY.
const maxRevoked = 4096

// wake signals without blocking. One pending signal is enough.
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

// revoke notes that a delivery no longer belongs to the subscriber. It wakes the subscriber,
// because its credit has grown.
func (s *Subscriber) revoke(seq ident.Sequence) {
	if len(s.revoked) < maxRevoked {
		s.revoked = append(s.revoked, seq)
	}
	s.wake()
}

// Attach makes s a subscriber of the channel. s may pull at once. Errors: ErrNotLeader, ErrDeleted,
// ErrAttached.
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
	c.p.attached.Add(1)
	c.uses++
	s.wake()
	return nil
}

// Detach ends the subscription. With requeue, the deliveries go back at once; otherwise they wait
// for their timeout. An ephemeral channel ends with its last subscriber. A subscriber cannot be
// attached again.
func (c *Channel) Detach(s *Subscriber, requeue bool) {
	if requeue {
		c.detach(s, c.backLocked)
	} else {
		c.detach(s, c.inFlight.detach)
	}
}

// Withdraw is Detach for an end that the client did not cause: the deliveries go back at once, and
// do not count as attempts.
func (c *Channel) Withdraw(s *Subscriber) { c.detach(s, c.undoLocked) }

// Undo reverses a delivery that the client has not seen: the message goes back at once, and the
// delivery does not count as an attempt. Errors as Finish.
func (c *Channel) Undo(s *Subscriber, r Receipt) error {
	return c.withOwned(s, r, func(f *delivery, now int64) {
		c.undoLocked(f)
		c.offerLocked(now)
	})
}

// Return requeues a delivery whose client has left, as Detach does. Errors as Finish.
func (c *Channel) Return(s *Subscriber, r Receipt) error {
	return c.withOwned(s, r, func(f *delivery, now int64) {
		c.backLocked(f)
		c.offerLocked(now)
	})
}

// AwaitTimeout leaves a delivery whose client has left in flight until its timeout. Errors as
// Finish.
func (c *Channel) AwaitTimeout(s *Subscriber, r Receipt) error {
	return c.withOwned(s, r, func(f *delivery, _ int64) { c.inFlight.detach(f) })
}

// undoLocked reverses a delivery: its attempt does not count.
func (c *Channel) undoLocked(f *delivery) {
	c.inFlight.remove(f)
	c.cursor.Requeue(f.seq, max(f.attempts, 1)-1)
	c.changedLocked()
}

// detach ends a subscription. It calls give for each of its deliveries.
func (c *Channel) detach(s *Subscriber, give func(*delivery)) {
	now := c.p.o.Now()
	c.mu.Lock()
	if s.channel != c {
		c.mu.Unlock()
		return
	}
	for s.deliveries != nil {
		give(s.deliveries)
	}
	c.withdrawOfferLocked(s)
	c.forgetLocked(s)
	s.err = ErrAttached
	last := c.ephemeral && len(c.subs) == 0
	c.offerLocked(now)
	c.mu.Unlock()
	if last {
		c.p.dropEphemeral(c)
	}
}

// forgetLocked removes s from the channel, but leaves its deliveries in flight.
func (c *Channel) forgetLocked(s *Subscriber) {
	if s.waiting {
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

// InFlight is the number of deliveries to s that are neither finished, requeued nor timed out.
func (c *Channel) InFlight(s *Subscriber) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.held
}

// Oldest is the delivery to s that has been in flight longest; nil if there is none. It looks at all of them.
func (c *Channel) Oldest(s *Subscriber) *api.HeldMessage {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest *delivery
	for x := s.deliveries; x != nil; x = x.next {
		if oldest == nil || x.start < oldest.start {
			oldest = x
		}
	}
	if oldest == nil {
		return nil
	}
	return &api.HeldMessage{ID: api.MessageIDOf(c.p.id, oldest.seq), Partition: c.p.id.Number, Attempts: oldest.attempts, For: time.Duration(now - oldest.start)}
}

// Err is the reason why s.Lost is closed: ErrNotLeader or ErrDeleted.
func (c *Channel) Err(s *Subscriber) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.err
}

// Revoked appends to dst the sequences of deliveries that the channel revoked from s (timed out,
// emptied) since the last call. s.Wake receives when there are some.
func (c *Channel) Revoked(s *Subscriber, dst []ident.Sequence) []ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	dst = append(dst, s.revoked...)
	s.revoked = s.revoked[:0]
	return dst
}
