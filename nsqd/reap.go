package nsqd

import "github.com/lockstepmq/lockstep/internal/ident"

// reapMessages bounds how many messages of a channel one Reap checks.
const reapMessages = 1 << 16

// asideMessages bounds the deferred messages of a channel to which Reap adds.
const asideMessages = 1 << 14

// Reap finishes messages at the front of every channel that have outlived their time to live, so
// that a channel without consumers does not hold the log for them. Behind a message that lives
// longer it stops: that message holds the log anyway. Leader only. It may read a disk. The broker
// calls it now and then; deliveries do not depend on it.
func (p *Partition) Reap() {
	now := p.o.Now()
	for _, c := range p.list() {
		c.reap(now)
	}
}

func (c *Channel) reap(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reapLocked(&c.ahead, now)
	c.reapLocked(&c.redelivery, now)
	c.p.lower(c.cursor.Deferred.Next()) // the read defers delayed messages
	c.offerLocked(now)
}

// reapLocked finishes expired messages at the front of a window, and further ones that it reads, up
// to the first message that lives.
func (c *Channel) reapLocked(w *window, now int64) {
	from := c.fetched
	for range reapMessages {
		if c.fetched > from+skipMessages {
			break // a filter rejects message after message
		}
		seq, ok := c.frontLocked(w)
		if !ok || !c.serving || c.awaitsPolicy || c.fenced(now) {
			break
		}
		if w == &c.ahead && c.cursor.Settled(seq) { // reclaimed or finished after it was read
			w.pop()
			continue
		}
		if w.life.seq == seq && w.life.since != 0 && !c.p.outlived(w.life, now) && !c.setsAsideLocked(w) {
			break
		}
		if w.empty() {
			if !c.loadLocked(w, now) {
				return // nothing to read, or another goroutine reads
			}
			continue
		}
		m := w.front()
		if c.passFrontLocked(w) {
			continue
		}
		w.life = lifeOf(m)
		if c.p.outlived(w.life, now) && c.expireFrontLocked(w, now) {
			continue
		}
		if !c.setsAsideLocked(w) {
			break
		}
		c.cursor.Requeue(w.front().Seq, 0)
		c.next = w.front().Seq + 1
		c.changedLocked()
		w.pop()
	}
	if len(c.subs) == 0 {
		c.releaseLocked(w)
	}
}

// frontLocked is the sequence at which a window begins, or would begin if it is empty.
func (c *Channel) frontLocked(w *window) (ident.Sequence, bool) {
	switch {
	case w == &c.redelivery:
		c.checkRedeliveryLocked()
		return c.cursor.Deferred.Peek()
	case !w.empty():
		return w.front().Seq, true
	}
	c.fetched = c.cursor.Unsettled(c.fetched)
	return c.fetched, c.fetched < c.limit
}

// finishFrontLocked finishes a message instead of delivering it.
func (c *Channel) finishFrontLocked(w *window) {
	seq := w.front().Seq
	if w == &c.ahead {
		c.next = seq + 1
	}
	c.cursor.Finish(seq)
	c.changedLocked()
	w.pop()
}

// setsAsideLocked reports whether Reap adds the next message of the channel to the ready queue: if
// the channel has a filter and no consumer, as the channel of dead letters has. The messages that it waits
// with are then relocated, and hold no log for those that it passes over.
func (c *Channel) setsAsideLocked(w *window) bool {
	return w == &c.ahead && c.filter != nil && len(c.subs) == 0 && !c.ordered && !c.ephemeral && c.cursor.Deferred.Len() < asideMessages
}

// passFrontLocked finishes the message if it is not for the channel. Of the messages read ahead those are
// finished already.
func (c *Channel) passFrontLocked(w *window) bool {
	if _, rejected := w.rejected[w.front().Seq]; !rejected {
		return false
	}
	c.verbs.Filtered.Add(1)
	c.finishFrontLocked(w)
	return true
}

// expireFrontLocked ends a message that has outlived its limit. If it has failed before, and the policy
// has a topic for dead letters, it goes there; otherwise it is finished. Nothing else reports the loss.
// False: it stays, because an ordered channel holds another message.
func (c *Channel) expireFrontLocked(w *window, now int64) bool {
	if w == &c.redelivery {
		e, _ := c.cursor.Deferred.Get(w.front().Seq)
		dead := c.isDeadLocked(e.Attempts())
		if dead || c.policy.DeadLetters && e.Attempts() > 0 {
			if c.blockedLocked() {
				return false
			}
			w.pop()
			c.cursor.Deferred.SkipFront()
			c.holdDeadLocked(e.Seq(), e.Attempts(), !dead, now)
			return true
		}
	}
	c.verbs.Expired.Add(1)
	c.finishFrontLocked(w)
	return true
}

// releaseLocked drops the messages of a window that no subscriber waits for.
func (c *Channel) releaseLocked(w *window) {
	if w == &c.ahead && !w.empty() {
		c.fetched = w.front().Seq
	}
	*w = window{average: w.average, life: w.life}
}
