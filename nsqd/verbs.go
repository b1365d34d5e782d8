package nsqd

import (
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// The verbs of a client name the delivery by its receipt. The delivery must be to s, unless s is nil: a client without a
// connection sends its receipt to any broker, which passes it to the leader.

// namedLocked finds the delivery that a receipt names. Errors are those of Finish.
func (c *Channel) namedLocked(s *Subscriber, r Receipt) (*delivery, error) {
	switch {
	case s != nil && (s.err == ErrNotLeader || s.err == ErrDeleted):
		return nil, s.err
	case s != nil && s.channel != c:
		return nil, outcome.ErrNotInFlight
	case s == nil && c.serving.deleted:
		return nil, ErrDeleted
	case s == nil && !c.serving.leads:
		return nil, ErrNotLeader
	}
	f, ok := c.inFlight.bySeq[r.Sequence]
	switch {
	case !ok, s == nil && f.sub == &c.dead.hold:
		return nil, outcome.ErrNotInFlight
	case s != nil && f.sub != s, !r.is(f):
		return nil, outcome.ErrNotOwner
	}
	return f, nil
}

// withNamed is update, with a change of the delivery that a receipt names.
func (c *Channel) withNamed(s *Subscriber, r Receipt, change func(f *delivery, now int64)) (err error) {
	c.update(func(now int64) {
		var f *delivery
		if f, err = c.namedLocked(s, r); err == nil {
			change(f, now)
		}
	})
	return err
}

// endedByReceiptLocked notifies the subscriber of a delivery that a receipt alone has ended.
func (c *Channel) endedByReceiptLocked(s *Subscriber, seq ident.Sequence, finished bool) {
	if s.channel != c {
		return
	}
	if s.Settled != nil {
		s.Settled(finished)
	}
	s.revoke(seq)
}

// Refusal is the error for a message that is not in flight to s: outcome.ErrNotOwner if it is in flight to another
// subscriber, otherwise outcome.ErrNotInFlight.
func (c *Channel) Refusal(s *Subscriber, seq ident.Sequence) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.inFlight.bySeq[seq]; ok && s.channel == c && f.sub != s {
		return outcome.ErrNotOwner
	}
	return outcome.ErrNotInFlight
}

// Finish settles a delivery permanently. An ordered channel delivers the next message when the finish is on all in-sync
// replicas. If s is nil, the subscriber of the delivery is woken. Errors: outcome.ErrNotInFlight; outcome.ErrNotOwner
// if another delivery of the message is in flight; ErrNotLeader, ErrDeleted.
func (c *Channel) Finish(s *Subscriber, r Receipt) error { return c.finish(s, r, false) }

// FinishLate is Finish for a client that names the message, not the delivery. The finish also counts for a delivery of
// an earlier epoch, if the message is finished or has not been delivered since; the caller makes sure that the message
// was sent to s and not revoked.
func (c *Channel) FinishLate(s *Subscriber, r Receipt) error { return c.finish(s, r, true) }

func (c *Channel) finish(s *Subscriber, r Receipt, late bool) error {
	c.mu.Lock()
	if c.order.on && !c.ephemeral {
		c.mu.Unlock()
		return c.finishInOrder(r.Sequence, func() (uint16, error) { return c.finishLocked(s, r, late) })
	}
	defer c.mu.Unlock()
	_, err := c.finishLocked(s, r, late)
	return err
}

// finishLocked returns the attempts of the message, 0 if it was already finished.
func (c *Channel) finishLocked(s *Subscriber, r Receipt, late bool) (uint16, error) {
	f, err := c.namedLocked(s, r)
	if late && err == outcome.ErrNotInFlight && s.channel == c && r.Epoch < c.serving.epoch {
		return c.finishLateLocked(r)
	}
	if err != nil {
		return 0, err
	}
	owner := f.sub
	c.settleLocked(f)
	if s == nil {
		c.endedByReceiptLocked(owner, r.Sequence, true)
	}
	return f.attempts, nil
}

// settleLocked finishes a delivery.
func (c *Channel) settleLocked(f *delivery) {
	c.inFlight.remove(f)
	c.cursor.Finish(f.seq)
	c.changedLocked()
	if f.expired {
		c.counts.Expired.Add(1)
	}
	if c.counts.latency != nil {
		now := c.p.o.Now()
		c.counts.latency.insert(now-f.putTime, now)
	}
}

// finishLateLocked applies a finish for a delivery of an earlier leader. If the message waits for a deadline, or has
// failed since, the delivery was revoked.
func (c *Channel) finishLateLocked(r Receipt) (uint16, error) {
	seq := r.Sequence
	e, isDeferred := c.cursor.Deferred.Get(seq)
	switch {
	case seq >= c.limit, isDeferred && (e.Deadline != 0 || r.since(e)):
		return 0, outcome.ErrNotInFlight
	case c.cursor.Settled(seq) && !isDeferred:
		return 0, nil // the finish had already been replicated
	}
	c.cursor.Finish(seq)
	c.changedLocked()
	return e.Attempts() + 1, nil
}

// Requeue requeues a delivery after a delay in ms, which is clamped to MaxReqTimeoutMS. An ordered channel delivers
// nothing during the delay, because the message must come before its successors. Errors are those of Finish.
func (c *Channel) Requeue(s *Subscriber, r Receipt, delayMS int64) error {
	return c.withNamed(s, r, func(f *delivery, now int64) {
		owner := f.sub
		c.counts.Requeues.Add(1)
		c.retryLocked(f, min(delayMS, c.p.o.MaxReqTimeoutMS), now)
		if s == nil {
			c.endedByReceiptLocked(owner, r.Sequence, false)
		}
	})
}

// retryLocked schedules the next delivery of a failed message, after the longer of the requested delay and the
// policy's. A dead message goes to the dead-letter hold.
func (c *Channel) retryLocked(f *delivery, delayMS, now int64) {
	if delayMS = max(delayMS, c.policy.Backoff.DelayMS(f.attempts)); delayMS <= 0 || c.policy.isDead(f.attempts) {
		c.backLocked(f)
		return
	}
	deadline := now + delayMS*nsPerMS
	c.inFlight.remove(f)
	c.cursor.DeferUntil(cursor.NewEntry(f.seq, deadline, f.attempts))
	if c.order.on {
		c.order.retrying = append(c.order.retrying, f.seq)
	}
	c.changedLocked()
	c.p.lower(deadline)
}

// backLocked requeues a delivery without a delay. A dead message goes to the dead-letter hold.
func (c *Channel) backLocked(f *delivery) {
	c.inFlight.remove(f)
	c.cursor.Requeue(f.seq, f.attempts)
	c.changedLocked()
	if c.policy.isDead(f.attempts) {
		c.holdDeadLocked(f.seq, f.attempts, false, c.p.o.Now())
	}
}

// Touch restarts the timeout of a delivery, up to MaxMsgTimeoutMS after it was sent. Errors are those of Finish.
func (c *Channel) Touch(s *Subscriber, r Receipt) error {
	return c.withNamed(s, r, func(f *delivery, now int64) {
		c.inFlight.setDeadline(f, min(now+c.timeoutNS(f.sub), f.start+c.p.o.MaxMsgTimeoutMS*nsPerMS))
	})
}

// Reclaim puts deliveries that clients of a relay still process after a change of leader into flight to s, without
// sending them again. They keep their receipts and remaining timeouts. It returns the sequences that cannot be claimed:
// those that are finished, wait for a deadline, have failed since or were delivered again; after a seek, all of them.
// If a message is claimed twice, the later delivery wins. For a receipt without attempts it assumes one more attempt
// than the channel has recorded.
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

// TransferDeliveries ends the subscription of old and assigns those of its deliveries that are in held to s, which is
// already attached. No other subscriber can receive them in between. A timeout ends when the receipt says or when it would have
// ended anyway, whichever is later: the client may have touched the delivery at its own broker while the connection was broken, or
// at another one by its receipt. The other deliveries of old are requeued as with Withdraw. The result is that of Reclaim.
func (c *Channel) TransferDeliveries(old, s *Subscriber, held []Receipt) (refused []ident.Sequence) {
	now := c.p.o.Now()
	left := make(map[ident.Sequence]Receipt, len(held))
	for _, h := range held {
		left[h.Sequence] = h
	}
	c.detach(old, func(f *delivery) {
		h, isHeld := left[f.seq]
		if !isHeld || !h.is(f) {
			c.undoLocked(f)
			return
		}
		delete(left, f.seq)
		c.inFlight.transfer(f, s)
		c.inFlight.setDeadline(f, max(f.deadline, c.deadlineOf(h, s, now)))
	})
	return c.Reclaim(s, slices.Collect(maps.Values(left)))
}

// deadlineOf is the deadline of a delivery that s claims.
func (c *Channel) deadlineOf(h Receipt, s *Subscriber, now int64) int64 {
	most := c.timeoutNS(s)
	if h.LeftMS > 0 {
		most = min(most, h.LeftMS*nsPerMS)
	}
	return now + most
}

func (c *Channel) reclaimLocked(s *Subscriber, h Receipt, now int64) bool {
	if f, ok := c.inFlight.bySeq[h.Sequence]; ok && s.channel == c && f.epoch < c.serving.epoch && h.name().compare(f.name) > 0 {
		f.sub.revoke(f.seq)
		c.undoLocked(f)
	}
	e, isDeferred := c.cursor.Deferred.Get(h.Sequence)
	_, isInFlight := c.inFlight.bySeq[h.Sequence]
	if s.channel != c || c.serving.seeked || isInFlight || h.Sequence >= c.limit || c.withdrewAfterLocked(h) ||
		isDeferred && (e.Deadline != 0 || h.since(e)) || !isDeferred && c.cursor.Settled(h.Sequence) {
		return false
	}
	if c.order.on && (c.inFlight.len() > 0 || c.order.replicating > 0) {
		return false
	}
	attempts := h.Attempts
	if attempts == 0 {
		attempts = e.Attempts() + 1
	}
	// Mark the message as deferred, so that the reader skips it.
	c.cursor.Settle(cursor.Span{From: h.Sequence, To: h.Sequence + 1})
	c.cursor.Deferred.MarkInFlight(h.Sequence, attempts-1)
	c.cursor.Touch(h.Sequence)
	c.changedLocked()
	c.inFlight.add(delivery{
		seq: h.Sequence, sub: s, start: now, deadline: c.deadlineOf(h, s, now), putTime: now,
		name: h.name(), attempts: attempts, deferred: true,
	})
	return true
}

// Receipt names one delivery: no other delivery of the partition has the same epoch and number. Every verb compares it,
// because attempts do not distinguish deliveries: a withdrawn delivery does not count as an attempt.
type Receipt struct {
	Sequence ident.Sequence
	Epoch    ident.Epoch // of the leader that made the delivery
	Number   uint64      // the leader counts its deliveries
	// Attempts is the number of attempts, including the delivery; 0: unknown. It does not identify the delivery. A
	// later leader uses it to decide whether the message has failed since.
	Attempts uint16
	// LeftMS is the remaining timeout, for Reclaim and TransferDeliveries; 0: the whole timeout.
	LeftMS int64
}

// ReceiptOf is the receipt of a delivery.
func ReceiptOf(d *api.Delivery) Receipt {
	return Receipt{Sequence: d.Message.Seq, Epoch: d.Epoch, Number: d.Number, Attempts: d.Message.Attempts}
}

// is reports whether the receipt names this delivery.
func (r Receipt) is(f *delivery) bool { return f.name == r.name() }

func (r Receipt) name() name { return name{r.Epoch, r.Number} }

// since reports whether the message, whose state is e, has failed since the delivery.
func (r Receipt) since(e cursor.Entry) bool { return r.Attempts > 0 && e.Attempts() >= r.Attempts }

// Awaited reports whether a delivery that is refused may still come into flight: it was made before this leadership
// began, and its edge may not have reclaimed it yet. The previous leadership may have had the same epoch, if this
// broker continued to lead after an abandoned transfer.
func (c *Channel) Awaited(r Receipt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.inFlight.bySeq[r.Sequence]
	e, isDeferred := c.cursor.Deferred.Get(r.Sequence)
	earlier := r.Epoch < c.serving.epoch || r.Epoch == c.serving.epoch && r.Number <= c.serving.delivered
	return !there && earlier && !c.serving.seeked && r.Sequence < c.limit &&
		!r.since(e) && (isDeferred && e.Deadline == 0 || !isDeferred && !c.cursor.Settled(r.Sequence))
}
