package nsqd

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// cursor is the replicated part of a channel: what of the log it is done with. A
// message is settled when it was finished or put aside; everything below
// confirmed is settled. What was put aside is unfinished still.
//
// The ranges above confirmed are at most one more than the messages in flight,
// because nothing else leaves a hole: that bounds memory, deltas and snapshots.
type cursor struct {
	start     ident.Sequence // where the channel began
	confirmed ident.Sequence
	ranges    rangeSet // settled above confirmed
	aside     asideSet

	// What the next delta must say (leader only).
	silent  bool // there are no deltas: an ephemeral channel
	dirty   bool
	fresh   rangeSet                    // settled since the last delta, above confirmed
	touched map[ident.Sequence]struct{} // aside entries that came, changed or went
}

// progress is what a delta says of one channel: absolute values, so that a
// suffix of deltas applied again on a newer state ends in the same state.
type progress struct {
	confirmed ident.Sequence
	settled   []span
	aside     []entry
	finished  []ident.Sequence // taken out of the aside set
}

// below is what it says of messages before an end.
func (p progress) below(end ident.Sequence) progress {
	cut := progress{confirmed: min(p.confirmed, end)}
	for _, s := range p.settled {
		if s.from < end {
			cut.settled = append(cut.settled, span{s.from, min(s.to, end)})
		}
	}
	for _, e := range p.aside {
		if e.seq() < end {
			cut.aside = append(cut.aside, e)
		}
	}
	return cut
}

func cursorAt(seq ident.Sequence) cursor { return cursor{start: seq, confirmed: seq} }

// end is where everything lies below that is settled.
func (c *cursor) end() ident.Sequence { return max(c.confirmed, c.ranges.end()) }

// settled reports whether seq was finished or put aside.
func (c *cursor) settled(seq ident.Sequence) bool {
	return seq < c.confirmed || c.ranges.contains(seq)
}

// settle marks s; already settled parts do not matter.
func (c *cursor) settle(s span) {
	c.dirty = true
	if s.from <= c.confirmed {
		c.confirmed = c.ranges.takeFrom(max(c.confirmed, s.to))
		return
	}
	if c.ranges.add(s) > 0 && !c.silent {
		c.fresh.add(s)
	}
}

// settledCount is how many messages were settled since the channel began.
func (c *cursor) settledCount() uint64 {
	return uint64(c.confirmed-c.start) + c.ranges.count
}

// finishedCount is how many messages are finished for good.
func (c *cursor) finishedCount() uint64 { return c.settledCount() - uint64(c.aside.len()) }

// putAside settles seq and lets it wait for the deadline.
func (c *cursor) putAside(e entry) {
	c.settle(span{e.seq(), e.seq() + 1})
	c.aside.wait(e)
	c.touch(e.seq())
}

// putReady settles seq and puts it at the end of the ready queue.
func (c *cursor) putReady(seq ident.Sequence, attempts uint16) {
	c.settle(span{seq, seq + 1})
	c.aside.makeReady(seq, attempts)
	c.touch(seq)
}

// finish settles seq for good.
func (c *cursor) finish(seq ident.Sequence) {
	if c.aside.drop(seq) {
		c.touch(seq)
		return
	}
	c.settle(span{seq, seq + 1})
}

func (c *cursor) touch(seq ident.Sequence) {
	if c.silent {
		return
	}
	c.dirty = true
	if c.touched == nil {
		c.touched = make(map[ident.Sequence]struct{})
	}
	c.touched[seq] = struct{}{}
}

// take gives what changed since the last take. False: nothing.
func (c *cursor) take() (progress, bool) {
	if !c.dirty {
		return progress{}, false
	}
	p := progress{confirmed: c.confirmed}
	c.fresh.takeFrom(c.confirmed)
	c.fresh.each(func(s span) { p.settled = append(p.settled, s) })
	seqs := make([]ident.Sequence, 0, len(c.touched))
	for seq := range c.touched {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		if e, ok := c.aside.get(seq); ok {
			p.aside = append(p.aside, e)
		} else {
			p.finished = append(p.finished, seq)
		}
	}
	c.clean()
	return p, true
}

// clean forgets what a delta would say.
func (c *cursor) clean() {
	c.dirty, c.touched = false, nil
	c.fresh.clear()
}

// whole gives the state as a progress from nothing.
func (c *cursor) whole() progress {
	p := progress{confirmed: c.confirmed, aside: c.aside.entries()}
	c.ranges.each(func(s span) { p.settled = append(p.settled, s) })
	return p
}

// apply takes over what the leader said. It never moves the position back:
// settling is a union. Only seek does.
func (c *cursor) apply(p progress) {
	c.settle(span{0, p.confirmed})
	for _, s := range p.settled {
		c.settle(s)
	}
	c.aside.grow(len(p.aside))
	for _, e := range p.aside {
		c.settle(span{e.seq(), e.seq() + 1})
		c.aside.wait(e)
	}
	for _, seq := range p.finished {
		c.settle(span{seq, seq + 1})
		if c.aside.drop(seq) {
			c.touch(seq)
		}
	}
}

// seek moves the position, also back, and forgets all exceptions to it.
func (c *cursor) seek(to ident.Sequence) {
	c.start, c.confirmed = min(c.start, to), to
	c.ranges.clear()
	c.aside.reset()
	c.clean()
}
