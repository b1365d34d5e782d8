package nsqd

import (
	"maps"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Subscriber is one consumer of one channel of one partition: a client's connection to this broker, or a relay for the
// clients of another broker. The exported fields do not change after Attach.
type Subscriber struct {
	// Wake receives when Pull may find messages. Several subscribers may share one. nil: Attach makes it.
	Wake chan struct{}
	// Woken, if set, is called instead of a send to Wake, under the channel's lock: it must not block or call back.
	Woken func()
	// Lost is closed when the channel stops serving; Err returns the reason. nil: Attach makes it.
	Lost chan struct{}
	// Client, if set, describes the subscriber's connections for statistics. It is called without locks.
	Client func() []api.ClientStats
	// Settled, if set, is called like Woken when a receipt finishes or requeues a delivery to the subscriber.
	Settled func(finished bool)
	// MsgTimeoutMS is the timeout of a delivery; 0: the default.
	MsgTimeoutMS int64
	// SampleRate, if not 0, delivers a message if rand(0..99) <= rate, and otherwise discards it for the channel (NSQ's
	// rule).
	SampleRate int32
	// Direct: the client is connected to this broker. Direct subscribers have priority over relays.
	Direct bool
	// PullBytes is the size at which a Pull stops; 0: 1 MiB.
	PullBytes int

	// Guarded by Channel.mu from Attach on.
	channel     *Channel // nil before Attach and after the subscription ended
	err         error
	deliveries  *delivery // in flight to it; a linked list
	inFlight    int
	want        int  // credit that its last Pull did not use up
	waiting     bool // in one of the channel's lists of waiting subscribers
	waitingNext *Subscriber
	waitingPrev *Subscriber
	offered     bool // woken, has not pulled since
	revoked     []ident.Sequence
}

// maxRevoked, above NSQ's largest RDY, bounds unfetched revocations and the dead messages of one fetch.
const maxRevoked = 4096

// pruneWithdrawn is how many withdrawn deliveries a channel remembers, beside two for each message that waits, before it
// forgets those of messages that no longer wait.
const pruneWithdrawn = 4096

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

// revoke ends a delivery to the subscriber and wakes the subscriber, because its credit has grown.
func (s *Subscriber) revoke(seq ident.Sequence) {
	if len(s.revoked) < maxRevoked {
		s.revoked = append(s.revoked, seq)
	}
	s.wake()
}

// Attach makes s a subscriber of the channel. s may then pull. Errors: ErrNotLeader, ErrDeleted, errAttached.
func (c *Channel) Attach(s *Subscriber) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.serving.deleted:
		return ErrDeleted
	case !c.serving.leads:
		return ErrNotLeader
	case s.channel != nil || s.err != nil:
		return errAttached
	}
	if s.Wake == nil && s.Woken == nil {
		s.Wake = make(chan struct{}, 1)
	}
	if s.Lost == nil {
		s.Lost = make(chan struct{})
	}
	s.channel = c
	c.subs.all[s] = struct{}{}
	c.p.counts.attached.Add(1)
	c.counts.uses++
	s.wake()
	return nil
}

// Detach ends the subscription. With requeue, the deliveries are requeued at once; otherwise they wait for their
// timeout. An ephemeral channel is removed with its last subscriber. A subscriber cannot be attached again.
func (c *Channel) Detach(s *Subscriber, requeue bool) {
	if requeue {
		c.detach(s, c.backLocked)
	} else {
		c.detach(s, c.inFlight.detach)
	}
}

// Withdraw is Detach for a cause other than the client: the deliveries are requeued at once and do not count as
// attempts.
func (c *Channel) Withdraw(s *Subscriber) { c.detach(s, c.withdrawLocked) }

// Undo reverses a delivery that the client has not seen. It does not count as an attempt. Errors are those of Finish.
func (c *Channel) Undo(s *Subscriber, r Receipt) error {
	return c.withNamed(s, r, func(f *delivery, _ int64) { c.undoLocked(f) })
}

// Return requeues a delivery whose client has left, as Detach does. Errors are those of Finish.
func (c *Channel) Return(s *Subscriber, r Receipt) error {
	return c.withNamed(s, r, func(f *delivery, _ int64) { c.backLocked(f) })
}

// AwaitTimeout leaves a delivery whose client has left in flight until its timeout. Errors are those of Finish.
func (c *Channel) AwaitTimeout(s *Subscriber, r Receipt) error {
	return c.withNamed(s, r, func(f *delivery, _ int64) { c.inFlight.detach(f) })
}

// undoLocked requeues a delivery that does not count as an attempt.
func (c *Channel) undoLocked(f *delivery) {
	c.inFlight.remove(f)
	c.cursor.Requeue(f.seq, max(f.attempts, 1)-1)
	c.changedLocked()
}

// withdrawLocked undoes a delivery that the client may have seen. Its edge may claim it until a later delivery is made.
func (c *Channel) withdrawLocked(f *delivery) {
	c.undoLocked(f)
	last, waiting := &c.inFlight.withdrawn, &c.cursor.Deferred
	if *last == nil {
		*last = make(map[ident.Sequence]name)
	}
	if len(*last) >= pruneWithdrawn+2*waiting.Len() {
		maps.DeleteFunc(*last, func(seq ident.Sequence, _ name) bool { _, waits := waiting.Get(seq); return !waits })
	}
	(*last)[f.seq] = f.name
}

// withdrewAfterLocked reports whether a later delivery than the receipt's was withdrawn.
func (c *Channel) withdrewAfterLocked(r Receipt) bool {
	last, ok := c.inFlight.withdrawn[r.Sequence]
	return ok && last.compare(r.name()) > 0
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
	s.err = errAttached
	last := c.ephemeral && len(c.subs.all) == 0
	c.offerLocked(now)
	c.mu.Unlock()
	if last {
		c.p.dropEphemeral(c)
	}
}

// forgetLocked removes s from the channel, but leaves its deliveries in flight.
func (c *Channel) forgetLocked(s *Subscriber) {
	if s.waiting {
		c.subs.list(s).remove(s)
	}
	s.channel, s.want, s.offered = nil, 0, false
	delete(c.subs.all, s)
}

// Consumers is the number of subscribers.
func (c *Channel) Consumers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.subs.all)
}

// InFlight is the number of deliveries to s that are neither finished, requeued nor timed out.
func (c *Channel) InFlight(s *Subscriber) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.inFlight
}

// Oldest is the delivery that has been in flight to s longest, or nil.
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

// Revoked appends to dst the sequences of deliveries to s that were revoked since the last call; s.Wake reports them.
func (c *Channel) Revoked(s *Subscriber, dst []ident.Sequence) []ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	dst = append(dst, s.revoked...)
	s.revoked = s.revoked[:0]
	return dst
}
