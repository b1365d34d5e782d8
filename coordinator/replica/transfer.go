package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// transfer is a planned change of leader (EL-7): puts are held, everything is committed
// and copied, then the key is given to the target. target is "" when none is under
// way.
type transfer struct {
	target  ident.Node
	sinceMS int64
}

// transferLeadership begins a transfer.
func (m *Machine) transferLeadership(ev TransferLeadership) {
	if m.lead != nil && m.role == Leader && m.lead.transfer.target == "" && m.inISR(ev.To) && ev.To != m.self.Node {
		m.lead.transfer = transfer{target: ev.To, sinceMS: m.nowMS}
		m.lead.paused = true
	}
}

// transferTick leads on when a transfer has not come about within the grace time, or
// its answer is lost. If it has landed after all, the target is a member of the ISR:
// it has whatever is committed here meanwhile.
func (m *Machine) transferTick() {
	l := m.lead
	if l.transfer.target != "" && m.nowMS-l.transfer.sinceMS > m.o.GraceMS {
		l.transfer.target, l.paused = "", m.rollbackMayLand()
	}
}

// proposeTransfer proposes the target as leader once it has everything. Its store
// must still be a member, for it may have been proposed out since the transfer began:
// a live leader whose store is no member would block every election.
func (m *Machine) proposeTransfer() bool {
	l := m.lead
	if l.transfer.target == "" {
		return false
	}
	f := l.follower(l.transfer.target)
	if f == nil || !slices.Contains(m.state.ISR, ident.Member{Node: f.node, Store: f.ack.store}) || !m.fromPresentProcess(f) {
		return false
	}
	complete := len(l.pending) == 0 && m.committed.Offset == m.log.end.Offset &&
		f.ack.end.Offset == m.log.end.Offset && f.ack.state == l.stateIssued
	if !complete {
		return false
	}
	s := m.state.Clone()
	s.Leader, s.LeaderIncarnation, s.Epoch = f.node, f.incarnation, l.epoch+1
	m.proposeCAS(casTransfer, s, nil, &Peer{Node: f.node, Incarnation: f.incarnation})
	return true
}
