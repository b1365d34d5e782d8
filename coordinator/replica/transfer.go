package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// transfer is a planned change of leader (EL-7): puts are held, everything is committed and copied, the channels stop,
// the target has their last changes, then the key is rewritten to name it as leader. target is "" when no transfer is
// in progress. If number is not 0, it identifies the request to the channels to stop, made at stopMS; stopped is set
// when they have.
type transfer struct {
	target  ident.Node
	sinceMS int64
	number  uint64
	stopMS  int64
	stopped bool
}

func (m *Machine) transferLeadership(ev TransferLeadership) {
	if m.lead != nil && m.role == Leader && m.lead.transfer.target == "" && m.inISR(ev.To) && ev.To != m.self.Node {
		m.lead.transfer = transfer{target: ev.To, sinceMS: m.nowMS}
		m.lead.paused = true
	}
}

// transferTick resumes the leadership when a transfer has not happened within the grace time, or within half of T_isr
// since the channels were asked to stop (no message is delivered since then), or its answer is lost. If it has landed
// after all, the target is a member of the ISR: it has everything that is committed here until then.
func (m *Machine) transferTick() {
	l := m.lead
	if t := &l.transfer; t.target != "" && (m.nowMS-t.sinceMS > m.o.GraceMS || t.number != 0 && m.nowMS-t.stopMS > m.o.ISRMS/2) {
		l.transfer, l.paused = transfer{}, m.rollbackMayLand()
	}
}

// channelsStopped notes that the channels have stopped accepting finishes, and that their last change has arrived.
func (m *Machine) channelsStopped(ev ChannelsStopped) {
	if l := m.lead; l != nil && ev.Number != 0 && ev.Number == l.transfer.number {
		l.transfer.stopped, l.review = true, true
	}
}

// proposeTransfer proposes the target as leader once it has everything. Its store must still be a member, because its
// removal may have been proposed since the transfer began. A live leader whose store is not a member would block every
// election.
func (m *Machine) proposeTransfer() bool {
	l := m.lead
	if l.transfer.target == "" {
		return false
	}
	f := l.follower(l.transfer.target)
	if f == nil || !slices.Contains(m.state.ISR, ident.Member{Node: f.node, Store: f.ack.store}) || !m.fromPresentProcess(f) {
		return false
	}
	if len(l.pending) > 0 || m.committed.Offset != m.log.end.Offset || f.ack.end.Offset != m.log.end.Offset {
		return false
	}
	if l.transfer.number == 0 { // as late as possible, because nothing is delivered from now on
		m.transfers++
		l.transfer.number, l.transfer.stopMS = m.transfers, m.nowMS
	}
	// A finish after the proposal would be missing in the target's state, and the message would be delivered again.
	if !l.transfer.stopped || f.ack.state != l.stateIssued {
		return false
	}
	s := m.state.Clone()
	s.Leader, s.LeaderIncarnation, s.Epoch = f.node, f.incarnation, l.epoch+1
	m.proposeCAS(casTransfer, s, nil, &Peer{Node: f.node, Incarnation: f.incarnation})
	return true
}
