package replica

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// marksInWindow is how many times per dedupe window a busy partition writes its identity mark.
	marksInWindow = 8
	// markBytes is how far a log without identities in the window may extend beyond the mark: a start searches that
	// part.
	markBytes = 64 << 20
)

// marks keeps the newest identity mark in the journal (DW-3), and the start of the log that retention must keep for it
// (DW-5).
type marks struct {
	written   queue.IdentityMark
	writtenMS int64
	token     uint64 // token of the submission that writes the mark; 0: the mark is durable
	keep      kept   // for the durable mark
	next      kept   // for written
}

// kept is the first batch that a start from a mark requires.
type kept struct {
	from ident.Offset
	some bool
}

func (k *kept) add(at ident.Offset) {
	if !k.some {
		k.from, k.some = at, true
	}
}

func (k *kept) cut(o ident.Offset) {
	if k.some && k.from >= o {
		*k = kept{}
	}
}

func newMarks(r *queue.Restored) (k marks) {
	k.written = r.Identities
	if len(r.Identified) > 0 {
		k.keep.add(r.Identified[0].At)
	}
	return k
}

func (k *marks) noteBatch(at ident.Offset) {
	k.keep.add(at)
	if k.token != 0 {
		k.next.add(at)
	}
}

func (k *marks) cut(o ident.Offset) {
	k.written = k.written.Cut(o)
	k.keep.cut(o)
	k.next.cut(o)
}

func (k *marks) synced(token uint64) {
	if k.token != 0 && k.token <= token {
		k.keep, k.token = k.next, 0
	}
}

// recordMark writes the identity mark with the first identity of the log; later together with a submission that happens
// anyway, while identities are forgotten; and in a submission of its own once the window is empty.
func (m *Machine) recordMark() {
	k, mark := &m.marks, m.dedupe.Mark(m.log.end.Offset, m.nowMS)
	if mark == (queue.IdentityMark{}) || k.token != 0 {
		return
	}
	_, some := m.dedupe.Oldest()
	first := k.written == (queue.IdentityMark{})
	forgot := mark.Forgotten != k.written.Forgotten
	late := m.nowMS-k.writtenMS >= m.dedupe.LengthMS/marksInWindow
	far := mark.From-k.written.From >= markBytes && !some
	if first || forgot && !some || m.wrote() && (forgot && late || far) {
		m.writeMark(mark)
	}
}

func (m *Machine) writeMark(mark queue.IdentityMark) {
	m.write(queue.Write{Kind: queue.WriteIdentities, Identities: mark})
	k := &m.marks
	k.written, k.writtenMS, k.token, k.next = mark, m.nowMS, m.out.Token, kept{}
	if at, some := m.dedupe.Oldest(); some {
		k.next.add(at)
	}
}
