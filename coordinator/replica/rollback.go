package replica

import (
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// rolledBackPut is a put that waits for the marker of the epoch that removed it (RB-6).
type rolledBackPut struct {
	ticket  uint64
	sinceMS int64
}

// rollbackTick proposes a rollback when the oldest pending put has waited longer than the write deadline and no change
// of the ISR could commit it (RB-2). It also answers the puts that cannot get a definite answer.
func (m *Machine) rollbackTick() {
	l := m.lead
	m.giveUpRolledBack()
	if l.paused && l.transfer.target == "" && !m.rollbackMayLand() {
		l.paused = false // the proposal did not land
	}
	if !m.overdue(m.o.WriteMS) {
		return
	}
	if m.overdue(m.o.WriteMS + m.o.GraceMS) { // no rollback has happened
		m.giveUpOverdue()
	}
	if m.markerCommitted() && m.cas == nil && len(l.unresolved) == 0 && l.open && m.nowMS >= l.retryMS {
		if _, changed := m.nextISR(); !changed && m.membersAnswer() {
			m.proposeRollback()
		}
	}
}

// membersAnswer reports whether every other member of the ISR answers as the registered process, with the store that
// the key names. Otherwise a rollback gives no definite answer, because every member must acknowledge its marker.
func (m *Machine) membersAnswer() bool {
	for _, x := range m.state.ISR {
		if x.Node == m.self.Node {
			continue
		}
		if f := m.lead.follower(x.Node); f == nil || !m.up(f) || !m.fromPresentProcess(f) || f.ack.store != x.Store {
			return false
		}
	}
	return true
}

// giveUpRolledBack answers "in doubt" after the grace time: a later leader may still bring the puts back.
func (m *Machine) giveUpRolledBack() {
	l := m.lead
	n := 0
	for n < len(l.rolledBack) && m.nowMS-l.rolledBack[n].sinceMS > m.o.GraceMS {
		m.inDoubt(l.rolledBack[n].ticket)
		n++
	}
	l.rolledBack = append(l.rolledBack[:0], l.rolledBack[n:]...)
}

// proposeRollback proposes the same ISR under a new epoch (RB-3). Until the key is seen in it, new puts are held.
func (m *Machine) proposeRollback() {
	l := m.lead
	l.paused, l.rollback = true, true
	s := m.state.Clone()
	s.Epoch = l.epoch + 1
	m.proposeCAS(casRollback, s, nil, nil)
}

// rollBack switches to the new epoch (RB-4). One journal record removes everything above the current committed end
// (RB-10), and puts the marker in its place. This leader continues to deliver what was committed before, and accepts
// changes of the channels (RB-14). A put is appended only behind the committed marker (RB-7).
func (m *Machine) rollBack(e ident.Epoch) {
	old := m.lead
	m.counters.Rollbacks++
	at := m.committed
	if at.Offset < m.log.end.Offset {
		m.truncate(at)
	}
	m.openEpoch(e, at)
	m.role = Leader
	l := m.lead
	l.afterRollback = true
	l.held, l.heldBytes = old.held, old.heldBytes
	m.awaitMarker(old)
}

// awaitMarker makes the pending puts of the old epoch wait for the marker of the new one. Its pending changes are in
// doubt: their effect is in the snapshot that the new epoch issues, which is not committed yet.
func (m *Machine) awaitMarker(old *leadership) {
	l := m.lead
	l.rolledBack = old.rolledBack
	for _, p := range old.pending {
		if p.end <= l.start.Offset { // cannot be: commit has answered it
			m.done(p.ticket, p.first, outcome.Committed)
			continue
		}
		l.rolledBack = append(l.rolledBack, rolledBackPut{ticket: p.ticket, sinceMS: m.nowMS})
	}
	for _, c := range old.changes {
		m.done(c.ticket, 0, outcome.InDoubt)
	}
}

// answerRolledBack answers the rolled-back puts once the marker is committed: they cannot come back (RB-6).
func (m *Machine) answerRolledBack() {
	for _, p := range m.lead.rolledBack {
		if p.ticket != 0 {
			m.counters.RolledBack++
			m.done(p.ticket, 0, outcome.RolledBack)
		}
	}
	m.lead.rolledBack = nil
}
