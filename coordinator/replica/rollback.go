package replica

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// rollbackTick takes uncommitted puts back when they have waited longer than
// the write deadline and no change of the ISR could commit them (RB-2), and
// ends the waiting of those that cannot get a definite answer.
func (m *Machine) rollbackTick() {
	l := m.lead
	n := 0
	for n < len(l.waiters) && m.now-l.waiters[n].sinceMS > m.o.GraceMS {
		m.inDoubt(l.waiters[n].ticket)
		n++
	}
	l.waiters = append(l.waiters[:0], l.waiters[n:]...)
	if l.paused && l.heir == "" && !m.rollbackMayLand() {
		l.paused = false // it did not land
	}
	if !m.overdue(m.o.WriteMS) {
		return
	}
	if m.overdue(m.o.WriteMS + m.o.GraceMS) { // no rollback came through: the fate stays open
		m.giveUpOverdue()
	}
	if (m.role == Leader || m.broken(BreakRollbackMarker)) && m.cas == nil && len(l.unresolved) == 0 && l.open && m.now >= l.retryMS {
		if _, better := m.wantedISR(); !better {
			m.proposeRollback()
		}
	}
}

// overdue: the oldest put with an offset has waited longer than ms.
func (m *Machine) overdue(ms int64) bool {
	p := m.lead.pending
	return len(p) > 0 && m.now-p[0].sentMS > ms
}

// giveUpOverdue answers "in doubt"; the batches stay, and may yet be committed
// or taken back.
func (m *Machine) giveUpOverdue() {
	l := m.lead
	keep := l.pending[:0]
	for _, p := range l.pending {
		if m.now-p.sentMS > m.o.WriteMS+m.o.GraceMS {
			m.inDoubt(p.ticket)
		} else {
			keep = append(keep, p)
		}
	}
	l.pending = keep
}

// proposeRollback asks for the same ISR under a new epoch (RB-3). Until the key
// is seen in the new epoch nothing is taken back, and puts that arrive wait.
func (m *Machine) proposeRollback() {
	l := m.lead
	l.paused, l.rollback, l.asked = true, true, m.committed
	if m.broken(BreakRollbackEpoch) {
		m.takeBack()
		return
	}
	s := m.state.Clone()
	s.Epoch = l.epoch + 1
	m.proposeCAS(casRollback, s, nil, nil)
}

func (m *Machine) rollbackMayLand() bool {
	l := m.lead
	if m.cas != nil && m.cas.kind == casRollback {
		return true
	}
	for i := range l.unresolved {
		if l.unresolved[i].kind == casRollback {
			return true
		}
	}
	return false
}

// rollBack is the switch of RB-4: the epoch was won, everything above the
// committed end, as it is now, is taken back, and the new epoch's marker takes
// its place, in one journal record.
func (m *Machine) rollBack(e ident.Epoch) {
	old := m.lead
	m.counters.Rollbacks++
	if m.broken(BreakRollbackFreeze) {
		m.committed = old.asked
	}
	at := m.committed
	if at.Offset < m.log.end.Offset {
		m.truncate(at)
	}
	m.openEpoch(e, at)
	l := m.lead
	if m.broken(BreakRollbackPositions) {
		for i := range l.followers {
			if f := old.follower(l.followers[i].node); f != nil {
				l.followers[i].match, l.followers[i].matched, l.followers[i].store = f.match, f.matched, f.store
			}
		}
	}
	l.held, l.heldBytes = old.held, old.heldBytes
	l.waiters = old.waiters
	for _, p := range old.pending {
		if p.end <= at.Offset { // cannot be: commit answered it
			m.done(p.ticket, p.first, Committed)
			continue
		}
		l.waiters = append(l.waiters, taken{ticket: p.ticket, sinceMS: m.now})
	}
	for _, c := range old.changes {
		m.done(c.ticket, 0, InDoubt)
	}
	if m.broken(BreakRollbackAnswer) {
		m.settleTaken()
	}
}

// settleTaken tells the producers of what was taken back, once the marker is
// committed: no later leader can bring it back (RB-6).
func (m *Machine) settleTaken() {
	for _, w := range m.lead.waiters {
		if w.ticket != 0 {
			m.counters.RolledBack++
			m.done(w.ticket, 0, RolledBack)
		}
	}
	m.lead.waiters = nil
}

// takeBack is the broken rule "rollback-epoch": it truncates within the epoch.
func (m *Machine) takeBack() {
	l := m.lead
	if m.committed.Offset < m.log.end.Offset {
		m.truncate(m.committed)
		m.write(queue.Write{Kind: queue.WriteTruncate, Epoch: l.epoch, At: m.committed, PrevCRC: m.log.lastCRC})
	}
	for _, p := range l.pending {
		m.done(p.ticket, 0, RolledBack)
	}
	l.pending, l.paused = nil, false
	for i := range l.followers {
		f := &l.followers[i]
		f.next, f.probing = least(f.next, m.log.end), true
	}
}
