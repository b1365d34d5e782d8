package replica

import "fmt"

// check verifies the invariants of doc.go that one machine can see by itself, in all tests. A violation panics.
func (m *Machine) check() {
	end := m.log.end.Offset
	m.assert(m.committed.Offset <= end, "I1: committed %d beyond end %d", m.committed.Offset, end)
	m.assert(m.log.durable.end.Offset <= end, "I1: durable %d beyond end %d", m.log.durable.end.Offset, end)
	m.assert(m.follow.verified.Offset <= end, "verified %d beyond end %d", m.follow.verified.Offset, end)
	m.assert((m.role == Leader || m.role == Electing) == (m.lead != nil), "role %s does not match the presence of a leadership", m.role)
	m.checkTail()
	if m.lead != nil {
		m.checkLeadership()
	}
}

func (m *Machine) checkTail() {
	kept := m.log.tail.all()
	for i := range kept {
		m.assert(i == 0 || kept[i].At == kept[i-1].End && kept[i].PrevCRC == kept[i-1].CRC, "memory tail has a hole at %d", kept[i].At.Offset)
	}
	m.assert(len(kept) == 0 || kept[len(kept)-1].End == m.log.end, "memory tail does not reach the end")
}

func (m *Machine) checkLeadership() {
	l := m.lead
	m.assert(l.epoch == m.promised, "leads epoch %d, promised %d", l.epoch, m.promised)
	m.assert(m.role != Leader || m.markerCommitted() || l.afterRollback, "I5: serves with its marker uncommitted")
	m.assert(m.markerCommitted() || m.log.end == l.markerEnd, "RB-7: a put behind an uncommitted marker")
	if c := m.cas; c != nil {
		m.assert(len(c.state.ISR) >= c.state.MinInSync, "I8: proposes %d of %d", len(c.state.ISR), c.state.MinInSync)
	}
	for i := range l.pending {
		m.assert(i == 0 || l.pending[i-1].end <= l.pending[i].end, "pending puts out of order")
		m.assert(m.role != Leader || l.pending[i].end > m.committed.Offset, "I9: a committed put was not answered")
	}
	for i := range l.followers {
		f := &l.followers[i]
		m.assert(f.ack.end.Offset <= m.log.end.Offset && f.next.Offset <= m.log.end.Offset, "%s is beyond the end", f.node)
		m.assert(f.reading() == (f.readToken != 0), "%s in phase %s, read %d", f.node, f.phase, f.readToken)
	}
}

func (m *Machine) assert(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf("replica %s on %s: "+format, append([]any{m.o.Partition, m.self.Node}, args...)...))
	}
}
