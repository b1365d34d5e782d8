package nsqd

import (
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// ownedLocked finds the delivery of seq to s.
func (c *Channel) ownedLocked(s *Subscriber, seq ident.Sequence) (*flight, error) {
	if s.channel != c {
		if s.err == ErrNotLeader || s.err == ErrDeleted {
			return nil, s.err
		}
		return nil, edge.ErrNotInFlight
	}
	f, ok := c.flights.bySeq[seq]
	if !ok {
		return nil, edge.ErrNotInFlight
	}
	if f.sub != s {
		return nil, edge.ErrNotOwner
	}
	return f, nil
}

// Refusal is what s is told of a delivery that it does not hold:
// edge.ErrNotOwner while another subscriber does, else edge.ErrNotInFlight.
func (c *Channel) Refusal(s *Subscriber, seq ident.Sequence) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.ownedLocked(s, seq); err == edge.ErrNotOwner {
		return err
	}
	return edge.ErrNotInFlight
}

// Finish settles a delivery for good. `in` is the epoch it was delivered in: if
// that is an earlier one and the message is neither finished nor delivered again
// since, the finish counts as well; the caller makes sure that s was sent it and
// that it was not taken back. On an ordered channel the next message is
// available only when the finish is on all in-sync replicas.
// edge.ErrNotInFlight, edge.ErrNotOwner, ErrNotLeader, ErrDeleted.
func (c *Channel) Finish(s *Subscriber, seq ident.Sequence, in ident.Epoch) error {
	c.mu.Lock()
	if c.ordered && !c.ephemeral {
		c.mu.Unlock()
		return c.finishOrdered(s, seq, in)
	}
	defer c.mu.Unlock()
	_, err := c.finishLocked(s, seq, in)
	return err
}

// finishLocked returns the attempts that the message had, 0 if it was finished already.
func (c *Channel) finishLocked(s *Subscriber, seq ident.Sequence, in ident.Epoch) (uint16, error) {
	f, err := c.ownedLocked(s, seq)
	if err != nil {
		if err == edge.ErrNotInFlight && s.channel == c && in < c.epoch {
			return c.finishLateLocked(seq)
		}
		return 0, err
	}
	c.flights.remove(f)
	c.cursor.finish(seq)
	c.changedLocked()
	if c.latency != nil {
		now := c.p.o.Now()
		c.latency.insert(now-f.put, now)
	}
	return f.attempts, nil
}

// finishLateLocked takes a finish for a delivery of an earlier leader. A message
// that waits for a deadline was taken back from whoever had it.
func (c *Channel) finishLateLocked(seq ident.Sequence) (uint16, error) {
	e, isAside := c.cursor.aside.get(seq)
	switch {
	case seq >= c.limit, isAside && e.deadline != 0:
		return 0, edge.ErrNotInFlight
	case c.cursor.settled(seq) && !isAside:
		return 0, nil // that finish has reached us by replication
	}
	c.cursor.finish(seq)
	c.changedLocked()
	return e.attempts() + 1, nil
}

// finishOrdered sends the finish to the replicas at once and keeps the channel
// shut until they have it.
func (c *Channel) finishOrdered(s *Subscriber, seq ident.Sequence, in ident.Epoch) error {
	p := c.p
	p.emit.Lock()
	defer p.emit.Unlock()
	c.mu.Lock()
	attempts, err := c.finishLocked(s, seq, in)
	if err != nil || attempts == 0 { // 0: it was finished already, nothing depends on this finish
		c.mu.Unlock()
		return err
	}
	done := &change{done: make(chan struct{}), channel: c, seq: seq, attempts: attempts, generation: c.generation}
	made, ok := c.cursor.take()
	if ok {
		c.confirming++
	}
	c.mu.Unlock()
	if ok {
		p.post(done, record{kind: kindProgress, channel: c.name, progress: made})
	}
	return nil
}

// finishConfirmed ends the wait of an ordered finish. If the replicas do not have
// it, the message comes again, as if it had not been delivered this time.
func (c *Channel) finishConfirmed(d *change, ok bool) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		return
	}
	c.confirming = max(c.confirming-1, 0)
	if !ok && d.generation == c.generation {
		c.cursor.putReady(d.seq, d.attempts-1)
		c.changedLocked()
	}
	c.offerLocked(now)
}

// Requeue gives a delivery back: at once with delay 0, else after the delay,
// which is clamped to MaxReqTimeoutMS. An ordered channel ignores the delay: the
// message must come before its successors. Errors as Finish.
func (c *Channel) Requeue(s *Subscriber, seq ident.Sequence, delayMS int64) error {
	return c.withOwned(s, seq, func(f *flight, now int64) {
		c.requeues++
		c.retryLocked(f, min(delayMS, c.p.o.MaxReqTimeoutMS), now)
		c.offerLocked(now) // an ordered channel is open again
	})
}

// withOwned does something, under the lock, to the delivery of seq to s.
func (c *Channel) withOwned(s *Subscriber, seq ident.Sequence, do func(f *flight, now int64)) error {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.ownedLocked(s, seq)
	if err == nil {
		do(f, now)
	}
	return err
}

// retryLocked lets a delivery that failed come again, after the delay asked for
// or that of the policy, or gives it up.
func (c *Channel) retryLocked(f *flight, delayMS, now int64) {
	if delayMS = max(delayMS, c.policy.Backoff.delayMS(f.attempts)); delayMS <= 0 || c.ordered || c.diesLocked(f.attempts) {
		c.backLocked(f)
		return
	}
	deadline := now + delayMS*nsPerMS
	c.flights.remove(f)
	c.cursor.putAside(newEntry(f.seq, deadline, f.attempts))
	c.changedLocked()
	c.p.lower(deadline)
}

// backLocked moves a delivery to the end of the ready queue.
func (c *Channel) backLocked(f *flight) {
	c.flights.remove(f)
	c.cursor.putReady(f.seq, f.attempts)
	c.changedLocked()
	if c.diesLocked(f.attempts) {
		c.buryLocked(f.seq, f.attempts, c.p.o.Now())
	}
}

// Touch gives a delivery another message timeout from now, but no more than
// MaxMsgTimeoutMS since it was sent. Errors as Finish.
func (c *Channel) Touch(s *Subscriber, seq ident.Sequence) error {
	return c.withOwned(s, seq, func(f *flight, now int64) {
		c.flights.delay(f, min(now+c.timeoutNS(s), f.start+c.p.o.MaxMsgTimeoutMS*nsPerMS))
	})
}

// Held is a delivery that a relay still holds after a change of leader.
type Held struct {
	Sequence ident.Sequence
	Attempts uint16 // as it was delivered; 0: one more than the channel knows
}

// Reclaim takes deliveries of an earlier epoch into flight to s again without
// sending them: their clients still work on them. It returns those that are
// finished, wait for a deadline or were delivered again, and all once the channel
// was moved.
func (c *Channel) Reclaim(s *Subscriber, held []Held) (refused []ident.Sequence) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range held {
		if !c.reclaimLocked(s, h, now) {
			refused = append(refused, h.Sequence)
		}
	}
	c.p.lower(c.flights.next())
	return refused
}

// Succeed ends the subscription of old and makes s, which is attached already, the
// owner of those of its deliveries that are held: nobody else can be given them
// in between. The others go back as with Withdraw. It returns as Reclaim does.
func (c *Channel) Succeed(old, s *Subscriber, held []Held) (refused []ident.Sequence) {
	deadline := c.p.o.Now() + c.timeoutNS(s)
	left := make(map[ident.Sequence]Held, len(held))
	for _, h := range held {
		left[h.Sequence] = h
	}
	c.detach(old, func(f *flight) {
		if _, isHeld := left[f.seq]; !isHeld {
			c.undoLocked(f)
			return
		}
		delete(left, f.seq)
		c.flights.hand(f, s)
		c.flights.delay(f, deadline)
	})
	return c.Reclaim(s, slices.Collect(maps.Values(left)))
}

func (c *Channel) reclaimLocked(s *Subscriber, h Held, now int64) bool {
	e, isAside := c.cursor.aside.get(h.Sequence)
	_, flying := c.flights.bySeq[h.Sequence]
	if s.channel != c || c.moved || flying || h.Sequence >= c.limit ||
		isAside && e.deadline != 0 || !isAside && c.cursor.settled(h.Sequence) {
		return false
	}
	if c.ordered && (c.flights.len() > 0 || c.confirming > 0) {
		return false
	}
	attempts := h.Attempts
	if attempts == 0 {
		attempts = e.attempts() + 1
	}
	// Put aside, so that the reader passes over it.
	c.cursor.settle(span{h.Sequence, h.Sequence + 1})
	c.cursor.aside.reclaim(h.Sequence, attempts-1)
	c.cursor.touch(h.Sequence)
	c.changedLocked()
	c.flights.add(flight{
		seq: h.Sequence, sub: s, start: now, deadline: now + c.timeoutNS(s), put: now,
		attempts: attempts, aside: true,
	})
	return true
}
