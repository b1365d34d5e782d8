package replica

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// published handles a put whose messages have identities (DW-1, DW-4): one whose messages are all in
// the log is answered with their place, or waits for their commit. It reports whether the put is
// dealt with.
func (m *Machine) published(p Put) bool {
	d := &m.dedupe
	r := d.Recognise(&p.Draft)
	fresh := int(p.Draft.Count) - r.Known
	if fresh > 0 && p.Draft.Whole() {
		fresh = 1 // identity for all of them
	}
	seen, again := m.recent.Find(p.Draft.Request) // the edge repeats it: the producer has published it once
	switch {
	case again && fresh > 0: // its window has passed, and edges may repeat puts for longer
		m.known(p, seen.First, seen.End.Offset, Duplicate)
		return true
	case fresh == 0 && again:
		m.known(p, r.First, r.End, Duplicate)
		return true
	case fresh == 0:
		m.known(p, r.First, r.End, Repeated)
		return true
	case !d.ReachesBack(m.nowMS):
		m.done(p.Ticket, 0, BelowWindow)
		return true
	case d.Full(fresh):
		m.done(p.Ticket, 0, WindowFull)
		return true
	}
	return false
}

// known answers a put whose messages are in the log up to end, or lets it wait for their commit.
func (m *Machine) known(p Put, first ident.Sequence, end ident.Offset, outcome Outcome) {
	if end <= m.committed.Offset && m.role == Leader {
		m.done(p.Ticket, first, outcome)
		return
	}
	m.await(pendingPut{ticket: p.Ticket, first: first, end: end, sentMS: m.nowMS, outcome: outcome})
}

// unknownPart is the part of a put that is not in the log, and the place of the put's first message
// if that is. published has found that some of it is not.
func (m *Machine) unknownPart(draft queue.Draft) (part queue.Draft, first ident.Sequence, known bool) {
	if draft.Count == 1 || draft.Whole() {
		return draft, 0, false
	}
	r := m.dedupe.Recognise(&draft)
	if r.Fresh == nil {
		return draft, 0, false
	}
	return draft.Keep(func(n int) bool { return r.Fresh[n] }), r.First, r.Any
}

// setDedupe takes another window.
func (m *Machine) setDedupe(ev Dedupe) { m.dedupe.Resize(ev.WindowMS) }
