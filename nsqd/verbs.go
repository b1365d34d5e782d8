package nsqd

import (
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// ownedLocked finds the delivery to s that a receipt names. Errors as Finish.
func (c *Channel) ownedLocked(s *Subscriber, r Receipt) (*delivery, error) {
	if s.channel != c {
		if s.err == ErrNotLeader || s.err == ErrDeleted {
			return nil, s.err
		}
		return nil, api.ErrNotInFlight
	}
	f, ok := c.inFlight.bySeq[r.Sequence]
	if !ok {
		return nil, api.ErrNotInFlight
	}
	if f.sub != s || !r.is(f) {
		return nil, api.ErrNotOwner
	}
	return f, nil
}

// Refusal is the error for a message that s does not hold: api.ErrNotOwner while another
// subscriber holds it, else api.ErrNotInFlight.
func (c *Channel) Refusal(s *Subscriber, seq ident.Sequence) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.inFlight.bySeq[seq]; ok && s.channel == c && f.sub != s {
		return api.ErrNotOwner
	}
	return api.ErrNotInFlight
}

// Finish settles a delivery permanently. A finish of a delivery of an earlier epoch counts as well, if
// the message is neither finished nor delivered again since; the caller
// makes sure that the message was sent to s and not revoked. On an ordered channel the next message
// becomes available when the finish is on all in-sync replicas. Errors: api.ErrNotInFlight; api.ErrNotOwner if
// another delivery of the message is in flight; ErrNotLeader, ErrDeleted.
func (c *Channel) Finish(s *Subscriber, r Receipt) error {
	c.mu.Lock()
	if c.ordered && !c.ephemeral {
		c.mu.Unlock()
		return c.finishInOrder(r.Sequence, func() (uint16, error) { return c.finishLocked(s, r) })
	}
	defer c.mu.Unlock()
	_, err := c.finishLocked(s, r)
	return err
}

// finishLocked returns the attempts of the message, 0 if it was finished already.
func (c *Channel) finishLocked(s *Subscriber, r Receipt) (uint16, error) {
	f, err := c.ownedLocked(s, r)
	if err != nil {
		if err == api.ErrNotInFlight && s.channel == c && r.Epoch < c.epoch {
			return c.finishLateLocked(r)
		}
		return 0, err
	}
	c.settleLocked(f)
	return f.attempts, nil
}

// settleLocked finishes a delivery.
func (c *Channel) settleLocked(f *delivery) {
	c.inFlight.remove(f)
	c.cursor.Finish(f.seq)
	c.changedLocked()
	if f.expired {
		c.verbs.Expired.Add(1)
	}
	if c.latency != nil {
		now := c.p.o.Now()
		c.latency.Insert(now-f.putTime, now)
	}
}

// finishLateLocked applies a finish for a delivery of an earlier leader. If the message waits for a
// deadline, or has failed since, the delivery was revoked before.
func (c *Channel) finishLateLocked(r Receipt) (uint16, error) {
	seq := r.Sequence
	e, isDeferred := c.cursor.Deferred.Get(seq)
	switch {
	case seq >= c.limit, isDeferred && (e.Deadline != 0 || r.since(e)):
		return 0, api.ErrNotInFlight
	case c.cursor.Settled(seq) && !isDeferred:
		return 0, nil // the finish was replicated before
	}
	c.cursor.Finish(seq)
	c.changedLocked()
	return e.Attempts() + 1, nil
}

// finishInOrder sends the finish of an ordered channel to the replicas at once. The channel stays closed until they
// have it. finish is called under the lock; it returns as finishLocked does.
func (c *Channel) finishInOrder(seq ident.Sequence, finish func() (uint16, error)) error {
	p := c.p
	p.emit.Lock()
	defer p.emit.Unlock()
	c.mu.Lock()
	attempts, err := finish()
	if err != nil || attempts == 0 { // it was finished already, and no message waits for this finish
		c.mu.Unlock()
		return err
	}
	done := &change{done: make(chan struct{}), channel: c, seq: seq, attempts: attempts, generation: c.generation}
	made, ok := c.cursor.TakeDelta()
	if ok {
		c.replicating++
	}
	c.mu.Unlock()
	if ok {
		p.post(done, state.Record{Kind: state.KindProgress, Channel: c.name, Progress: made})
	}
	return nil
}

// finishReplicated ends the wait for an ordered finish. If the replicas do not have it, the message
// is delivered again, as if this delivery had not happened.
func (c *Channel) finishReplicated(d *change, ok bool) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving {
		return
	}
	c.replicating = max(c.replicating-1, 0)
	if !ok && d.generation == c.generation {
		c.cursor.Requeue(d.seq, d.attempts-1)
		c.changedLocked()
	}
	c.offerLocked(now)
}

// Requeue gives a delivery back: at once with delay 0, else after the delay in ms, which is clamped
// to MaxReqTimeoutMS. An ordered channel delivers nothing during the delay, because the message must
// come before its successors. Errors as Finish.
func (c *Channel) Requeue(s *Subscriber, r Receipt, delayMS int64) error {
	return c.withOwned(s, r, func(f *delivery, now int64) {
		c.verbs.Requeues.Add(1)
		c.retryLocked(f, min(delayMS, c.p.o.MaxReqTimeoutMS), now)
		c.offerLocked(now) // without a delay an ordered channel may deliver again
	})
}

// withOwned calls do, under the lock, with the delivery to s that a receipt names.
func (c *Channel) withOwned(s *Subscriber, r Receipt, do func(f *delivery, now int64)) error {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.ownedLocked(s, r)
	if err == nil {
		do(f, now)
	}
	return err
}

// retryLocked schedules a failed delivery again, after the requested delay or that of the policy.
// If the message is dead, it goes to the dead-letter hold.
func (c *Channel) retryLocked(f *delivery, delayMS, now int64) {
	if delayMS = max(delayMS, c.policy.Backoff.DelayMS(f.attempts)); delayMS <= 0 || c.isDeadLocked(f.attempts) {
		c.backLocked(f)
		return
	}
	deadline := now + delayMS*nsPerMS
	c.inFlight.remove(f)
	c.cursor.DeferUntil(cursor.NewEntry(f.seq, deadline, f.attempts))
	c.retriesLocked(f.seq)
	c.changedLocked()
	c.p.lower(deadline)
}

// backLocked requeues a delivery. If the message is dead, it goes to the dead-letter hold.
func (c *Channel) backLocked(f *delivery) {
	c.inFlight.remove(f)
	c.cursor.Requeue(f.seq, f.attempts)
	c.changedLocked()
	if c.isDeadLocked(f.attempts) {
		c.holdDeadLocked(f.seq, f.attempts, false, c.p.o.Now())
	}
}

// Touch extends a delivery by another message timeout from now, up to MaxMsgTimeoutMS after it was
// sent. Errors as Finish.
func (c *Channel) Touch(s *Subscriber, r Receipt) error {
	return c.withOwned(s, r, func(f *delivery, now int64) {
		c.inFlight.setDeadline(f, min(now+c.timeoutNS(s), f.start+c.p.o.MaxMsgTimeoutMS*nsPerMS))
	})
}

// Reclaim takes deliveries that a relay still holds after a change of leader into flight to s again
// without sending them, because their clients still process them. They keep their receipts. It returns the
// sequences that are finished, wait for a deadline, have failed since or were delivered again; and all of
// them after a seek. A receipt without attempts has one more than the channel has recorded.
func (c *Channel) Reclaim(s *Subscriber, held []Receipt) (refused []ident.Sequence) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range held {
		if !c.reclaimLocked(s, h, now) {
			refused = append(refused, h.Sequence)
		}
	}
	c.p.lower(c.inFlight.next())
	return refused
}

// TransferDeliveries ends the subscription of old and assigns its deliveries that are in held to s,
// which is attached already. No other subscriber can receive them in between. The other deliveries
// of old go back as with Withdraw. It returns as Reclaim does.
func (c *Channel) TransferDeliveries(old, s *Subscriber, held []Receipt) (refused []ident.Sequence) {
	deadline := c.p.o.Now() + c.timeoutNS(s)
	left := make(map[ident.Sequence]Receipt, len(held))
	for _, h := range held {
		left[h.Sequence] = h
	}
	c.detach(old, func(f *delivery) {
		if h, isHeld := left[f.seq]; !isHeld || !h.is(f) {
			c.undoLocked(f)
			return
		}
		delete(left, f.seq)
		c.inFlight.transfer(f, s)
		c.inFlight.setDeadline(f, deadline)
	})
	return c.Reclaim(s, slices.Collect(maps.Values(left)))
}

func (c *Channel) reclaimLocked(s *Subscriber, h Receipt, now int64) bool {
	e, isDeferred := c.cursor.Deferred.Get(h.Sequence)
	_, isInFlight := c.inFlight.bySeq[h.Sequence]
	if s.channel != c || c.seeked || isInFlight || h.Sequence >= c.limit ||
		isDeferred && (e.Deadline != 0 || h.since(e)) || !isDeferred && c.cursor.Settled(h.Sequence) {
		return false
	}
	if c.ordered && (c.inFlight.len() > 0 || c.replicating > 0) {
		return false
	}
	attempts := h.Attempts
	if attempts == 0 {
		attempts = e.Attempts() + 1
	}
	// The message is deferred, so that the reader skips it.
	c.cursor.Settle(cursor.Span{From: h.Sequence, To: h.Sequence + 1})
	c.cursor.Deferred.MarkInFlight(h.Sequence, attempts-1)
	c.cursor.Touch(h.Sequence)
	c.changedLocked()
	c.inFlight.add(delivery{
		seq: h.Sequence, sub: s, start: now, deadline: now + c.timeoutNS(s), putTime: now,
		epoch: h.Epoch, number: h.Number, attempts: attempts, deferred: true,
	})
	return true
}
