package nsqd

import "github.com/lockstepmq/lockstep/internal/ident"

// reapMessages bounds how many messages of a channel one Reap checks.
const reapMessages = 1 << 16

// asideMessages is the number of deferred messages of a channel up to which Reap adds more.
const asideMessages = 1 << 14

// Reap finishes expired messages at the front of every channel, so that retention can remove them although the channel
// has no consumers. The broker calls it periodically on the leader; deliveries do not depend on it. It may read a disk.
func (p *Partition) Reap() {
	for _, c := range p.list() {
		c.update(func(now int64) {
			c.reapLocked(&c.reader.ahead, now)
			c.reapLocked(&c.reader.redelivery, now)
			p.lower(c.cursor.Deferred.Next()) // the read has deferred delayed messages
		})
	}
}

// reapLocked finishes expired messages at the front of a window, and further ones that it reads.
func (c *Channel) reapLocked(w *window, now int64) {
	from := c.reader.fetched
	for range reapMessages {
		if c.reader.fetched > from+skipMessages {
			break // the filter rejects one message after another
		}
		seq, ok := c.frontLocked(w)
		if !ok || c.verdictLocked(nil, nil, now).stopsReap() {
			break
		}
		if w == &c.reader.ahead && c.cursor.Settled(seq) { // reclaimed or finished after it was read
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
		if w.rejects(seq) {
			c.counts.Filtered.Add(1)
			c.finishFrontLocked(w)
			continue
		}
		w.life = lifeOf(w.front())
		if c.p.outlived(w.life, now) && c.expireFrontLocked(w, now) {
			continue
		}
		if !c.setsAsideLocked(w) {
			break
		}
		c.cursor.Requeue(seq, 0)
		c.reader.next = seq + 1
		c.changedLocked()
		w.pop()
	}
	if len(c.subs.all) == 0 {
		c.releaseLocked(w)
	}
}

// frontLocked is the sequence at which a window begins, or would begin if it is empty.
func (c *Channel) frontLocked(w *window) (ident.Sequence, bool) {
	switch {
	case w == &c.reader.redelivery:
		c.checkRedeliveryLocked()
		return c.cursor.Deferred.Peek()
	case !w.empty():
		return w.front().Seq, true
	}
	c.reader.fetched = c.cursor.Unsettled(c.reader.fetched)
	return c.reader.fetched, c.reader.fetched < c.limit
}

// finishFrontLocked finishes a message instead of delivering it.
func (c *Channel) finishFrontLocked(w *window) {
	seq := w.front().Seq
	if w == &c.reader.ahead {
		c.reader.next = seq + 1
	}
	c.cursor.Finish(seq)
	c.changedLocked()
	w.pop()
}

// setsAsideLocked reports whether Reap adds the next message of the channel to the ready queue: if the channel has a
// filter and no consumer, as the channel of dead letters does. Such messages are relocated, so that the log can be
// trimmed.
func (c *Channel) setsAsideLocked(w *window) bool {
	return w == &c.reader.ahead && c.policy.filter != nil && len(c.subs.all) == 0 && !c.order.on && !c.ephemeral && c.cursor.Deferred.Len() < asideMessages
}

// expireFrontLocked ends an expired message. If the message has failed before, and the policy has a dead-letter topic,
// it goes there; otherwise it is finished. False: the message stays, because an ordered channel is blocked.
func (c *Channel) expireFrontLocked(w *window, now int64) bool {
	if w == &c.reader.redelivery {
		e, _ := c.cursor.Deferred.Get(w.front().Seq)
		dead := c.policy.isDead(e.Attempts())
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
	c.counts.Expired.Add(1)
	c.finishFrontLocked(w)
	return true
}

// releaseLocked drops the messages of a window; they are read again when they are needed.
func (c *Channel) releaseLocked(w *window) {
	if w == &c.reader.ahead && !w.empty() {
		c.reader.fetched = w.front().Seq
	}
	*w = window{average: w.average, life: w.life}
}
