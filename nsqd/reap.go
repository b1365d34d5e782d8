package nsqd

import "github.com/lockstepmq/lockstep/internal/ident"

// reapMessages bounds how far one look at a channel goes.
const reapMessages = 1 << 16

// Reap finishes what has outlived its limit at the front of every channel, so
// that a channel without consumers does not keep it and hold the log for it.
// What lies behind a message that lives longer waits for that one: the log is
// held by it anyway. Leader only; it may read a disk. The broker calls it now
// and then: consumers do not depend on it.
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
	c.reapLocked(&c.redo, now)
	c.p.lower(c.cursor.aside.next()) // reading puts what is delayed aside
	c.offerLocked(now)
}

// reapLocked finishes what is expired at the front of a window, and what it
// reads after that, up to the first message that lives.
func (c *Channel) reapLocked(w *window, now int64) {
	for range reapMessages {
		seq, ok := c.frontLocked(w)
		if !ok || !c.serving || c.fenced(now) {
			break
		}
		if w == &c.ahead && c.cursor.settled(seq) { // reclaimed or finished since it was read
			w.pop()
			continue
		}
		if w.life.seq == seq && w.life.since != 0 && !c.p.outlived(w.life, now) {
			break
		}
		if w.empty() {
			if !c.loadLocked(w, now) {
				return // nothing to read now, or somebody else does
			}
			continue
		}
		m := w.front()
		w.life = lifeOf(m)
		if !c.p.outlived(w.life, now) {
			break
		}
		c.finishFrontLocked(w)
	}
	if len(c.subs) == 0 {
		c.releaseLocked(w)
	}
}

// frontLocked is the sequence at which a window begins or, empty, would.
func (c *Channel) frontLocked(w *window) (ident.Sequence, bool) {
	switch {
	case w == &c.redo:
		c.checkRedoLocked()
		return c.cursor.aside.peek()
	case !w.empty():
		return w.front().Seq, true
	}
	c.fetched = c.cursor.ranges.after(max(c.fetched, c.cursor.confirmed))
	return c.fetched, c.fetched < c.limit
}

// finishFrontLocked finishes a message instead of delivering it.
func (c *Channel) finishFrontLocked(w *window) {
	seq := w.front().Seq
	if w == &c.ahead {
		c.next = seq + 1
	}
	c.cursor.finish(seq)
	c.changedLocked()
	w.pop()
}

// releaseLocked gives back what was read and nobody waits for.
func (c *Channel) releaseLocked(w *window) {
	if w == &c.ahead && !w.empty() {
		c.fetched = w.front().Seq
	}
	*w = window{average: w.average, life: w.life}
}
