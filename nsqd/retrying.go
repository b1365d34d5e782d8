package nsqd

import "github.com/lockstepmq/lockstep/internal/ident"

// An ordered channel honours the delay of a failed message (REQ with a delay, the back-off of a
// policy): it delivers no message until the failed one is due. The next message would change the
// order, and the same message without a delay would use up its attempts. The wait is part of the
// replicated state: an entry of the deferred set with a deadline and at least one attempt. A
// message that was published with a delay has no attempt, so no message waits for it. A dead
// message is no longer part of the order either.

// retriesLocked notes that an ordered channel waits for a deferred message.
func (c *Channel) retriesLocked(seq ident.Sequence) {
	if c.ordered {
		c.retrying = append(c.retrying, seq)
	}
}

// findRetriesLocked finds in the state the messages that an ordered channel has to wait for.
func (c *Channel) findRetriesLocked() {
	c.retrying = nil
	if !c.ordered {
		return
	}
	for _, e := range c.cursor.Deferred.Waiting() {
		if e.Attempts() > 0 && e.Seq() < c.limit && !c.isDeadLocked(e.Attempts()) {
			c.retrying = append(c.retrying, e.Seq())
		}
	}
}

// retryingLocked reports whether one of them still waits. It forgets those that do not: they are
// due, or an operator has cancelled them.
func (c *Channel) retryingLocked() bool {
	for n := len(c.retrying); n > 0; n = len(c.retrying) {
		if c.cursor.Deferred.Waits(c.retrying[n-1]) {
			return true
		}
		c.retrying = c.retrying[:n-1]
	}
	return false
}
