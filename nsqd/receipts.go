package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Receipt names one delivery. Its holder is a client without a connection: any broker passes the receipt to
// the leader, so it is not compared with the subscriber.
type Receipt struct {
	Sequence ident.Sequence
	Epoch    ident.Epoch // of the delivery
	Attempts uint16      // including the delivery
}

// receivedLocked finds the delivery of a receipt. Errors: edge.ErrNotInFlight, edge.ErrNotOwner if the message
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
		return nil, edge.ErrNotInFlight
	case f.attempts != r.Attempts, f.epoch != r.Epoch: // a leader that died may have made as many attempts
		return nil, edge.ErrNotOwner
	}
	return f, nil
}

// Awaited reports whether a delivery that Receive refuses may still come into flight: another leader made it, and
// its edge may not have reclaimed it here yet.
func (c *Channel) Awaited(r Receipt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.inFlight.bySeq[r.Sequence]
	e, isDeferred := c.cursor.Deferred.Get(r.Sequence)
	return !there && r.Epoch < c.epoch && !c.moved && r.Sequence < c.limit &&
		(isDeferred && e.Deadline == 0 || !isDeferred && !c.cursor.Settled(r.Sequence))
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
	c.takenLocked(owner, r.Sequence)
	return r.Attempts, nil
}

// takenLocked notifies a subscriber of the end of a delivery that it did not ask for.
func (c *Channel) takenLocked(s *Subscriber, seq ident.Sequence) {
	if s.channel == c {
		s.revoke(seq)
	}
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
	c.takenLocked(owner, r.Sequence)
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
