package replica

import "fmt"

// check verifies the invariants of doc.go that one machine can see by itself.
// It is on in all tests; a violation is a bug of this package, so it panics.
func (m *Machine) check() {
	assert := func(ok bool, format string, args ...any) {
		if !ok {
			panic(fmt.Sprintf("replica %s on %s: "+format, append([]any{m.o.Partition, m.self.Node}, args...)...))
		}
	}
	l := m.lead
	assert(m.committed.Offset <= m.log.end.Offset, "I1: committed %d beyond end %d", m.committed.Offset, m.log.end.Offset)
	assert(m.log.durable.end.Offset <= m.log.end.Offset, "I1: durable %d beyond end %d", m.log.durable.end.Offset, m.log.end.Offset)
	assert(m.follow.verified.Offset <= m.log.end.Offset, "verified %d beyond end %d", m.follow.verified.Offset, m.log.end.Offset)
	assert((m.role == Leader || m.role == Electing) == (l != nil), "role %s without its leadership", m.role)
	kept := m.log.tail[m.log.head:]
	for i := range kept {
		assert(i == 0 || kept[i].At == kept[i-1].End && kept[i].PrevCRC == kept[i-1].CRC, "memory tail has a hole at %d", kept[i].At.Offset)
	}
	assert(len(kept) == 0 || kept[len(kept)-1].End == m.log.end, "memory tail does not reach the end")
	if l == nil {
		return
	}
	assert(l.epoch == m.promised, "leads epoch %d, promised %d", l.epoch, m.promised)
	assert(m.role != Leader || m.committed.Offset >= l.markerEnd.Offset, "I5: serves with its marker uncommitted")
	if c := m.cas; c != nil {
		assert(len(c.state.ISR) >= c.state.MinInSync, "I8: proposes %d of %d", len(c.state.ISR), c.state.MinInSync)
	}
	for i := range l.pending {
		assert(i == 0 || l.pending[i-1].end <= l.pending[i].end, "pending puts out of order")
		assert(m.role != Leader || l.pending[i].end > m.committed.Offset, "I9: a committed put was not answered")
	}
	for i := range l.followers {
		f := &l.followers[i]
		assert(f.match.Offset <= m.log.end.Offset && f.next.Offset <= m.log.end.Offset, "%s is beyond the end", f.node)
	}
}
