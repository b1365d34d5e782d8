package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Receipt names one delivery: no other delivery of the partition has the same epoch and number. Every
// verb compares it, because the attempts do not tell deliveries apart: a delivery that is withdrawn gives
// its attempt back.
type Receipt struct {
	Sequence ident.Sequence
	Epoch    ident.Epoch // of the leader that made the delivery
	Number   uint64      // the leader counts its deliveries
	// Attempts is the number of attempts, including the delivery; 0: unknown. It names nothing. A later
	// leader judges by it whether the message has failed since.
	Attempts uint16
}

// ReceiptOf is the receipt of a delivery.
func ReceiptOf(d *api.Delivery) Receipt {
	return Receipt{Sequence: d.Message.Seq, Epoch: d.Epoch, Number: d.Number, Attempts: d.Message.Attempts}
}

// is reports whether the receipt names this delivery.
func (r Receipt) is(f *delivery) bool { return r.Epoch == f.epoch && r.Number == f.number }

// since reports whether the message, whose state is e, has failed since the delivery.
func (r Receipt) since(e cursor.Entry) bool { return r.Attempts > 0 && e.Attempts() >= r.Attempts }

// The methods below are for a client without a connection: any broker passes the receipt to the leader,
// so it is not compared with the subscriber.

// receivedLocked finds the delivery of a receipt. Errors: api.ErrNotInFlight, api.ErrNotOwner if the message
// was delivered again since, ErrNotLeader, ErrDeleted.
func (c *Channel) receivedLocked(r Receipt) (*delivery, error) {
	switch {
	case c.closed:
		return nil, ErrDeleted
	case !c.serving:
		return nil, ErrNotLeader
	}
	f, ok := c.inFlight.bySeq[r.Sequence]
	switch {
	case !ok, f.sub == &c.deadLetterHold:
		return nil, api.ErrNotInFlight
	case !r.is(f):
		return nil, api.ErrNotOwner
	}
	return f, nil
}

// Awaited reports whether a delivery that is refused may still come into flight: it was made before this leadership
// began, and its edge may not have reclaimed it yet. The leadership before may have been of the same epoch, if this
// broker leads on after a transfer that was abandoned.
func (c *Channel) Awaited(r Receipt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.inFlight.bySeq[r.Sequence]
	e, isDeferred := c.cursor.Deferred.Get(r.Sequence)
	earlier := r.Epoch < c.epoch || r.Epoch == c.epoch && r.Number <= c.before
	return !there && earlier && !c.seeked && r.Sequence < c.limit &&
		!r.since(e) && (isDeferred && e.Deadline == 0 || !isDeferred && !c.cursor.Settled(r.Sequence))
}

// FinishReceived is Finish by receipt. The subscriber that the message is in flight to loses the delivery, and is
// woken. Errors as receivedLocked.
func (c *Channel) FinishReceived(r Receipt) error {
	c.mu.Lock()
	if c.ordered && !c.ephemeral {
		c.mu.Unlock()
		return c.finishInOrder(r.Sequence, func() (uint16, error) { return c.finishReceivedLocked(r) })
	}
	defer c.mu.Unlock()
	_, err := c.finishReceivedLocked(r)
	return err
}

func (c *Channel) finishReceivedLocked(r Receipt) (uint16, error) {
	f, err := c.receivedLocked(r)
	if err != nil {
		return 0, err
	}
	owner := f.sub
	c.settleLocked(f)
	c.takenLocked(owner, r.Sequence, true)
	return f.attempts, nil
}

// takenLocked notifies a subscriber of the end of a delivery that it did not ask for.
func (c *Channel) takenLocked(s *Subscriber, seq ident.Sequence, finished bool) {
	if s.channel != c {
		return
	}
	if s.Settled != nil {
		s.Settled(finished)
	}
	s.revoke(seq)
}

// RequeueReceived is Requeue by receipt. Errors as FinishReceived.
func (c *Channel) RequeueReceived(r Receipt, delayMS int64) error {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.receivedLocked(r)
	if err != nil {
		return err
	}
	owner := f.sub
	c.verbs.Requeues.Add(1)
	c.retryLocked(f, min(delayMS, c.p.o.MaxReqTimeoutMS), now)
	c.takenLocked(owner, r.Sequence, false)
	c.offerLocked(now)
	return nil
}

// TouchReceived is Touch by receipt. Errors as FinishReceived.
func (c *Channel) TouchReceived(r Receipt) error {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.receivedLocked(r)
	if err != nil {
		return err
	}
	c.inFlight.setDeadline(f, min(now+c.timeoutNS(f.sub), f.start+c.p.o.MaxMsgTimeoutMS*nsPerMS))
	return nil
}
