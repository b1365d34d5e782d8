package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// order is the state of an ordered channel: at most one message is in flight, and none while gated, replicating or
// retrying is set.
//
// It honours the delay of a failed message (REQ with a delay, the backoff of a policy) before it delivers any message.
// The next message would change the order, and the same message without a delay would use up its attempts. The wait is
// replicated: an entry of the deferred set with a deadline and at least one attempt. No message waits for a dead
// message, or for a message that was published with a delay.
type order struct {
	on          bool
	gated       bool             // until the state at the start of this leadership is on all in-sync replicas
	replicating int              // finishes that are not on all in-sync replicas yet
	retrying    []ident.Sequence // failed messages that may have to wait for their next delivery
}

// blockedLocked reports whether an ordered channel waits: for a message, its finish or redelivery, or its state.
func (c *Channel) blockedLocked() bool {
	return c.order.on && (c.order.gated || c.order.replicating > 0 || c.inFlight.len() > 0 || c.retryingLocked())
}

// setOrdered makes the channel ordered or unordered from the next delivery on: when nothing is in flight, and all
// failed messages are due.
func (c *Channel) setOrdered(on bool) {
	c.update(func(int64) {
		c.order.on, c.cursor.Deferred.BySeq, c.reader.pacing.paused = on, on, false
		c.findRetriesLocked()
	})
}

// gateUntilReplicated closes an ordered channel until all in-sync replicas have its state, and reports whether it is closed.
func (c *Channel) gateUntilReplicated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving.leads {
		c.order.gated = c.order.on && !c.ephemeral
	}
	return c.order.gated
}

// findRetriesLocked finds in the state the messages that an ordered channel has to wait for.
func (c *Channel) findRetriesLocked() {
	c.order.retrying = nil
	if !c.order.on {
		return
	}
	for _, e := range c.cursor.Deferred.Waiting() {
		if e.Attempts() > 0 && e.Seq() < c.limit && !c.policy.isDead(e.Attempts()) {
			c.order.retrying = append(c.order.retrying, e.Seq())
		}
	}
}

// retryingLocked reports whether a failed message still waits. It forgets the messages that are due or cancelled.
func (c *Channel) retryingLocked() bool {
	for n := len(c.order.retrying); n > 0; n = len(c.order.retrying) {
		if c.cursor.Deferred.Waits(c.order.retrying[n-1]) {
			return true
		}
		c.order.retrying = c.order.retrying[:n-1]
	}
	return false
}

// finishInOrder sends the finish of an ordered channel to the replicas at once. The channel stays blocked until they
// have it. finish is called under the lock, and returns the same values as finishLocked.
func (c *Channel) finishInOrder(seq ident.Sequence, finish func() (uint16, error)) error {
	p := c.p
	p.emit.Lock()
	defer p.emit.Unlock()
	c.mu.Lock()
	attempts, err := finish()
	if err != nil || attempts == 0 { // it was already finished, and no message waits for this finish
		c.mu.Unlock()
		return err
	}
	d := &pendingChange{p: p, finish: orderedFinish{channel: c, seq: seq, attempts: attempts, generation: c.reader.generation}}
	made, ok := c.cursor.TakeDelta()
	if ok {
		c.order.replicating++
	}
	c.mu.Unlock()
	if ok {
		p.post(d, state.Record{Kind: state.KindProgress, Channel: c.name, Progress: made})
	}
	return nil
}

// orderedFinish is a finish whose replication an ordered channel is waiting for.
type orderedFinish struct {
	channel    *Channel
	seq        ident.Sequence
	attempts   uint16
	generation uint64
}

// completed ends the wait. If the finish was not replicated, the message is delivered again with its previous attempts.
func (f *orderedFinish) completed(ok bool) {
	c := f.channel
	c.update(func(int64) {
		if !c.serving.leads {
			return
		}
		c.order.replicating = max(c.order.replicating-1, 0)
		if !ok && f.generation == c.reader.generation {
			c.cursor.Requeue(f.seq, f.attempts-1)
			c.changedLocked()
		}
	})
}
