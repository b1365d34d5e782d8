package replica

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// pendingPut is a put with a position in the log that waits for its commit.
type pendingPut struct {
	ticket uint64
	first  ident.Sequence
	end    ident.Offset
	sentMS int64 // when the put was appended, or its repeat arrived

	outcome outcome.Outcome // the answer when it is committed; 0: Committed
}

// heldPut is a put without a position in the log, so its failure is definite (RB-1).
type heldPut struct {
	put     Put
	sinceMS int64
}

// propose handles new puts (AC-1). A repeat joins its first attempt; the others are appended as one group, or held.
func (m *Machine) propose(ev Propose) {
	l := m.lead
	if l == nil {
		for _, p := range ev.Puts {
			m.done(p.Ticket, 0, outcome.NotLeader)
		}
		return
	}
	m.log.timeNS = max(m.log.timeNS, ev.TimeNS)
	for _, p := range ev.Puts {
		switch {
		case m.answerRepeat(p):
		case m.accepts(&p.Draft):
			m.appendPut(p)
		case l.heldBytes+p.Draft.Size() > m.o.HeldBytes:
			m.refuse(p.Ticket)
		default:
			l.held = append(l.held, heldPut{put: p, sinceMS: m.nowMS})
			l.heldBytes += p.Draft.Size()
		}
	}
}

// answerRepeat recognises a put that needs no write. A request id in the log stands for the whole put, so it is looked
// up before any message id (AC-7). The put is answered with the position of its first attempt, or waits for that
// attempt's commit.
func (m *Machine) answerRepeat(p Put) bool {
	seen, ok := m.recent.Find(p.Draft.Request)
	if !ok {
		return p.Draft.Identified && m.answerPublished(p)
	}
	first := m.placeOfFirst(&p.Draft, seen.First)
	m.answerKnown(p, pendingPut{first: first, end: seen.End.Offset}, outcome.Duplicate)
	return true
}

// answerKnown answers a put whose messages are in the log up to at.end, or lets it wait for their commit.
func (m *Machine) answerKnown(p Put, at pendingPut, o outcome.Outcome) {
	if at.end <= m.committed.Offset && m.role == Leader {
		m.done(p.Ticket, at.first, o)
		return
	}
	at.ticket, at.sentMS = p.Ticket, m.nowMS
	m.await(at)
}

// await inserts a pending put in the order of its end.
func (m *Machine) await(p pendingPut) {
	l := m.lead
	i := len(l.pending)
	for i > 0 && l.pending[i-1].end > p.end {
		i--
	}
	l.pending = slices.Insert(l.pending, i, p)
}

// appendPut assigns a put its position in the log. After that a failure is not definite without a rollback (AC-2,
// RB-1).
func (m *Machine) appendPut(p Put) {
	draft, first, known := p.Draft, ident.Sequence(0), false
	if draft.Identified {
		draft, first, known = m.newPart(draft)
	}
	if draft.Identified {
		draft.Clock = m.dedupe.Stamp(m.nowMS)
	}
	b := draft.Seal(m.log.end, m.lead.epoch, m.log.lastCRC, m.log.timeNS)
	m.appendBatch(b)
	m.extend(b)
	m.addToTail(b)
	if !known {
		first = b.At.Sequence
	}
	m.lead.pending = append(m.lead.pending, pendingPut{ticket: p.Ticket, first: first, end: b.End.Offset, sentMS: m.nowMS})
}

// admitHeld appends the held puts in their order as soon as that is possible.
func (m *Machine) admitHeld() {
	l := m.lead
	if len(l.held) == 0 || !m.writable() || m.withSpace(m.state.ISR) < len(m.state.ISR) {
		return
	}
	held := l.held
	l.held, l.heldBytes = nil, 0
	for _, h := range held {
		if !m.answerRepeat(h.put) {
			m.appendPut(h.put)
		}
	}
}

// refuseHeld refuses the puts that were held for T_hold (AC-6).
func (m *Machine) refuseHeld() {
	l := m.lead
	n := 0
	for n < len(l.held) && m.nowMS-l.held[n].sinceMS > m.o.HoldMS {
		l.heldBytes -= l.held[n].put.Draft.Size()
		m.refuse(l.held[n].put.Ticket)
		n++
	}
	l.held = append(l.held[:0], l.held[n:]...)
}

// refuse answers a put without an offset, with the number of members that answer or have acknowledged the marker.
func (m *Machine) refuse(ticket uint64) {
	c := outcome.Completion{Ticket: ticket, Outcome: outcome.NotEnoughReplicas}
	n := m.liveISR()
	if n >= m.state.MinInSync && !m.markerCommitted() {
		n = m.markerHolders()
	}
	switch {
	case n < m.state.MinInSync:
		c.InSync, c.Minimum = n, m.state.MinInSync
	case m.withSpace(m.state.ISR) < len(m.state.ISR): // the change of the ISR or of the leader has not happened
		c.Outcome = outcome.DiskFull
	}
	m.out.Done = append(m.out.Done, c)
}

// markerHolders counts the ISR members that hold the marker of this epoch durably.
func (m *Machine) markerHolders() int {
	n := 0
	for _, x := range m.state.ISR {
		f := m.lead.follower(x.Node)
		if x.Node == m.self.Node || f != nil && f.ack.valid && f.ack.store == x.Store && f.ack.end.Offset >= m.lead.markerEnd.Offset {
			n++
		}
	}
	return n
}

func (m *Machine) answerCommitted() {
	l := m.lead
	n := 0
	for n < len(l.pending) && l.pending[n].end <= m.committed.Offset {
		m.done(l.pending[n].ticket, l.pending[n].first, cmp.Or(l.pending[n].outcome, outcome.Committed))
		n++
	}
	l.pending = append(l.pending[:0], l.pending[n:]...)
}

func (m *Machine) overdue(ms int64) bool {
	p := m.lead.pending
	return len(p) > 0 && m.nowMS-p[0].sentMS > ms
}

// giveUpOverdue answers "in doubt" for pending puts past the write deadline and the grace time. Their batches stay in
// the log.
func (m *Machine) giveUpOverdue() {
	l := m.lead
	keep := l.pending[:0]
	for _, p := range l.pending {
		if m.nowMS-p.sentMS > m.o.WriteMS+m.o.GraceMS {
			m.inDoubt(p.ticket)
		} else {
			keep = append(keep, p)
		}
	}
	l.pending = keep
}

// answerPublished handles a put with identities that is not a repeat of an edge (DW-1, DW-4): if all its messages are
// in the log, it is answered with their position, or waits for their commit. It reports whether the put has been
// handled.
func (m *Machine) answerPublished(p Put) bool {
	d := &m.dedupe
	r := d.Recognise(&p.Draft)
	switch {
	case r.Known == int(p.Draft.Count):
		m.answerKnown(p, pendingPut{first: r.First, end: r.End, outcome: outcome.Repeated}, outcome.Repeated)
		return true
	case !d.ReachesBack(m.nowMS):
		m.done(p.Ticket, 0, outcome.BelowWindow)
		return true
	case d.Full(r.New):
		m.done(p.Ticket, 0, outcome.WindowFull)
		return true
	}
	return false
}

// newPart is the part of a put that is not in the log, which is not empty, and the position of its first message if
// known.
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

// placeOfFirst is the position of the first message of a put that is in the log. batch is where the newly written part
// begins. The first message may be elsewhere in the log, if it was recognised as a repeat and not written again.
func (m *Machine) placeOfFirst(draft *queue.Draft, batch ident.Sequence) ident.Sequence {
	if draft.Count > 1 && draft.Identified {
		if r := m.dedupe.Recognise(draft); r.Any {
			return r.First
		}
	}
	return batch
}
