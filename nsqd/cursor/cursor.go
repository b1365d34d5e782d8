package cursor

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Cursor is the replicated part of a channel: the messages of the log that need no first delivery. A
// message is settled when it was finished or deferred. A deferred message is still unfinished.
type Cursor struct {
	start     ident.Sequence // where the channel began
	confirmed ident.Sequence
	ranges    rangeSet // settled above confirmed
	// Deferred is the set of deferred messages. A direct change of it (a delivery, a timer) is not in the next delta.
	Deferred deferredSet

	// Unreplicated is set for an ephemeral channel, which sends no deltas.
	Unreplicated bool

	// The content of the next delta (leader only).
	dirty        bool
	newlySettled rangeSet                    // settled since the last delta, above confirmed
	touched      map[ident.Sequence]struct{} // deferred messages that were added, changed or removed
}

// Progress is the content of a delta for one channel, in absolute values (invariant 4).
type Progress struct {
	Confirmed ident.Sequence
	Settled   []Span
	Deferred  []Entry
	Finished  []ident.Sequence // removed from the deferred set because they are finished
}

// Below returns the part of p about messages below an end.
func (p Progress) Below(end ident.Sequence) Progress {
	cut := Progress{Confirmed: min(p.Confirmed, end)}
	for _, s := range p.Settled {
		if s.From < end {
			cut.Settled = append(cut.Settled, Span{s.From, min(s.To, end)})
		}
	}
	for _, e := range p.Deferred {
		if e.Seq() < end {
			cut.Deferred = append(cut.Deferred, e)
		}
	}
	return cut
}

// New returns the cursor of a channel that begins at seq.
func New(seq ident.Sequence) Cursor { return Cursor{start: seq, confirmed: seq} }

// End is the first sequence above all settled ones.
func (c *Cursor) End() ident.Sequence { return max(c.confirmed, c.ranges.end()) }

// Start is the first sequence of the channel.
func (c *Cursor) Start() ident.Sequence { return c.start }

// Confirmed is the confirmed sequence: every sequence below it is settled.
func (c *Cursor) Confirmed() ident.Sequence { return c.confirmed }

// Unsettled is the first sequence at or above seq that is not settled.
func (c *Cursor) Unsettled(seq ident.Sequence) ident.Sequence {
	return c.ranges.after(max(seq, c.confirmed))
}

// Settled reports whether seq was finished or deferred.
func (c *Cursor) Settled(seq ident.Sequence) bool {
	return seq < c.confirmed || c.ranges.contains(seq)
}

// Settle marks the range s as settled. Parts of it may be settled already.
func (c *Cursor) Settle(s Span) {
	c.dirty = true
	if s.From <= c.confirmed {
		c.confirmed = c.ranges.takeFrom(max(c.confirmed, s.To))
		return
	}
	if c.ranges.add(s) > 0 && !c.Unreplicated {
		c.newlySettled.add(s)
	}
}

// SettledCount is the number of messages settled since the channel began.
func (c *Cursor) SettledCount() uint64 {
	return uint64(c.confirmed-c.start) + c.ranges.count
}

// DeferUntil settles the message and defers it until its deadline.
func (c *Cursor) DeferUntil(e Entry) {
	c.Settle(Span{e.Seq(), e.Seq() + 1})
	c.Deferred.Schedule(e)
	c.Touch(e.Seq())
}

// Requeue settles seq and appends it to the ready queue.
func (c *Cursor) Requeue(seq ident.Sequence, attempts uint16) {
	c.Settle(Span{seq, seq + 1})
	c.Deferred.makeReady(seq, attempts)
	c.Touch(seq)
}

// Finish settles seq permanently and removes it from the deferred set.
func (c *Cursor) Finish(seq ident.Sequence) {
	if c.Deferred.drop(seq) {
		c.Touch(seq)
		return
	}
	c.Settle(Span{seq, seq + 1})
}

// Touch records for the next delta that seq was added to the deferred set, changed in it, or removed from it.
func (c *Cursor) Touch(seq ident.Sequence) {
	if c.Unreplicated {
		return
	}
	c.dirty = true
	if c.touched == nil {
		c.touched = make(map[ident.Sequence]struct{})
	}
	c.touched[seq] = struct{}{}
}

// TakeDelta returns the changes since the last call and clears them. False if there are none.
func (c *Cursor) TakeDelta() (Progress, bool) {
	if !c.dirty {
		return Progress{}, false
	}
	p := Progress{Confirmed: c.confirmed}
	c.newlySettled.takeFrom(c.confirmed)
	c.newlySettled.each(func(s Span) { p.Settled = append(p.Settled, s) })
	seqs := make([]ident.Sequence, 0, len(c.touched))
	for seq := range c.touched {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		if e, ok := c.Deferred.Get(seq); ok {
			p.Deferred = append(p.Deferred, e)
		} else {
			p.Finished = append(p.Finished, seq)
		}
	}
	c.ClearDelta()
	return p, true
}

// ClearDelta drops the changes for the next delta.
func (c *Cursor) ClearDelta() {
	c.dirty, c.touched = false, nil
	c.newlySettled.clear()
}

// Full returns the whole state as a progress.
func (c *Cursor) Full() Progress {
	p := Progress{Confirmed: c.confirmed, Deferred: c.Deferred.entries()}
	c.ranges.each(func(s Span) { p.Settled = append(p.Settled, s) })
	return p
}

// Apply applies a progress of the leader. It never moves the cursor back, because settling is a union. Only Seek does.
func (c *Cursor) Apply(p Progress) {
	c.Settle(Span{0, p.Confirmed})
	for _, s := range p.Settled {
		c.Settle(s)
	}
	c.Deferred.grow(len(p.Deferred))
	for _, e := range p.Deferred {
		c.Settle(Span{e.Seq(), e.Seq() + 1})
		c.Deferred.Schedule(e)
	}
	for _, seq := range p.Finished {
		c.Settle(Span{seq, seq + 1})
		if c.Deferred.drop(seq) {
			c.Touch(seq)
		}
	}
}

// Restore applies the progress of a snapshot to a new cursor. The channel began at start.
func (c *Cursor) Restore(start ident.Sequence, p Progress) {
	c.Apply(p)
	c.start = min(start, c.confirmed)
	c.ClearDelta()
}

// Moves counts the messages that a Seek would skip and repeat. first is the first message of the log.
//
// A message is skipped if it is below `to` and not finished: in the log, or deferred (also below first, if it was
// relocated). It is repeated if it is at or above `to`, finished or passed, and still in the log. It is neither if the
// channel delivers it once in any case: new, in flight or deferred, at or above `to`.
func (c *Cursor) Moves(to, first ident.Sequence) (skipped, repeated uint64) {
	open, passed := max(c.confirmed, first), max(to, first)
	if open < to {
		skipped = uint64(to-open) - c.ranges.countIn(open, to)
	}
	if passed < c.confirmed {
		repeated = uint64(c.confirmed - passed)
	}
	repeated += c.ranges.countIn(max(passed, c.confirmed), ident.MaxSequence)
	for seq := range c.Deferred.All { // settled, and not finished
		if seq < passed {
			skipped++
		} else {
			repeated--
		}
	}
	return skipped, repeated
}

// Seek moves the cursor, forward or back, and drops all settled ranges and deferred messages.
func (c *Cursor) Seek(to ident.Sequence) {
	c.start, c.confirmed = min(c.start, to), to
	c.ranges.clear()
	c.Deferred.reset()
	c.ClearDelta()
}

// Elsewhere is the effect of FinishElsewhere.
type Elsewhere struct {
	Finished uint64 // messages that were not finished before
	Kept     uint64 // messages that this channel has delivered and not finished
	Stays    bool   // nothing has changed, because the channel has consumers
}

// FinishElsewhere finishes the messages of the spans below a limit, except those that this channel has itself
// delivered: the held ones, and deferred ones with attempts. It returns the change for the replicas.
func (c *Cursor) FinishElsewhere(spans []Span, limit ident.Sequence, held []ident.Sequence) (made Progress, e Elsewhere) {
	for _, s := range spans {
		if s.To = min(s.To, limit); s.From < s.To {
			made.Settled = append(made.Settled, s)
		}
	}
	for _, seq := range held {
		if c.Deferred.Has(seq) {
			continue // settled already
		}
		if left, cut := without(made.Settled, seq); cut {
			made.Settled = left
			e.Kept++
		}
	}
	for seq := range c.Deferred.All {
		if _, named := without(made.Settled, seq); !named {
			continue
		}
		if x, _ := c.Deferred.Get(seq); x.Attempts() > 0 || slices.Contains(held, seq) {
			e.Kept++
			continue
		}
		made.Finished = append(made.Finished, seq)
	}
	before := c.SettledCount()
	for _, s := range made.Settled {
		c.Settle(s)
	}
	for _, seq := range made.Finished {
		c.Finish(seq)
	}
	e.Finished = c.SettledCount() - before + uint64(len(made.Finished))
	return made, e
}

// without removes one sequence from the spans; cut reports whether a span had it.
func without(spans []Span, seq ident.Sequence) (left []Span, cut bool) {
	at := slices.IndexFunc(spans, func(s Span) bool { return s.From <= seq && seq < s.To })
	if at < 0 {
		return spans, false
	}
	s := spans[at]
	for _, part := range []Span{{s.From, seq}, {seq + 1, s.To}} {
		if part.From < part.To {
			left = append(left, part)
		}
	}
	return slices.Concat(spans[:at], left, spans[at+1:]), true
}
