package replica

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// answerPublished handles a put with identities that is not a repeat of an edge (DW-1, DW-4): one whose messages are all
// in the log is answered with their place, or waits for their commit. It reports whether the put is dealt with.
func (m *Machine) answerPublished(p Put) bool {
	d := &m.dedupe
	r := d.Recognise(&p.Draft)
	switch {
	case r.Known == int(p.Draft.Count):
		m.answerKnown(p, pendingPut{first: r.First, end: r.End, outcome: Repeated}, Repeated)
		return true
	case !d.ReachesBack(m.nowMS):
		m.done(p.Ticket, 0, BelowWindow)
		return true
	case d.Full(r.New):
		m.done(p.Ticket, 0, WindowFull)
		return true
	}
	return false
}

// newPart is the part of a put that is not in the log, which is not empty, and the place of its first message if known.
func (m *Machine) newPart(draft queue.Draft) (part queue.Draft, first ident.Sequence, known bool) {
	if draft.Count == 1 || draft.HasPutIdentity() {
		return draft, 0, false
	}
	r := m.dedupe.Recognise(&draft)
	if r.Fresh == nil {
		return draft, 0, false
	}
	return draft.Keep(func(n int) bool { return r.Fresh[n] }), r.First, r.Any
}

// placeOfFirst is the place of the first message of a put that is in the log. batch is where the part that was written
// begins: the first message may have been known before, and stand elsewhere.
func (m *Machine) placeOfFirst(draft *queue.Draft, batch ident.Sequence) ident.Sequence {
	if draft.Count > 1 && draft.Identified {
		if r := m.dedupe.Recognise(draft); r.Any {
			return r.First
		}
	}
	return batch
}
