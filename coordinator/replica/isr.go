package replica

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// nextISR returns the ISR that the leader would propose (AC-5, CU-4, CU-7, AC-10), and whether it differs from the
// key's: without the members that lag, with the replicas that have caught up, and without members below their disk
// reserve if the others satisfy the minimum. If the rest is below the minimum, no member is removed (ID-4): no put
// could be accepted anyway. Members that do not answer may still reach each other, and can replace this leader
// only while they are members.
func (m *Machine) nextISR() (isr []ident.Member, changed bool) {
	var lagging []ident.Member
	for _, x := range m.state.ISR {
		if x.Node != m.self.Node && m.lagging(x) {
			lagging = append(lagging, x)
		} else {
			isr = append(isr, x)
		}
	}
	isr = append(isr, m.joining(isr)...)
	if m.withSpace(isr) >= m.state.MinInSync {
		isr = slices.DeleteFunc(isr, func(x ident.Member) bool { return x.Node != m.self.Node && m.low(x.Node) })
	}
	if len(isr) < m.state.MinInSync {
		for _, x := range lagging { // a member that came back with another store rejoins in its own position
			if !ident.HasMember(isr, x.Node) {
				isr = append(isr, x)
			}
		}
	}
	slices.SortFunc(isr, byNode)
	return isr, !slices.Equal(isr, slices.SortedFunc(slices.Values(m.state.ISR), byNode))
}

// low reports whether a node is below its disk reserve.
func (m *Machine) low(n ident.Node) bool {
	if m.lows == 0 {
		return false
	}
	i, ok := slices.BinarySearchFunc(m.nodes, n, func(x node, n ident.Node) int { return cmp.Compare(x.name, n) })
	return ok && m.nodes[i].low
}

// withSpace counts the members that are not below their disk reserve.
func (m *Machine) withSpace(isr []ident.Member) (n int) {
	if m.lows == 0 {
		return len(isr)
	}
	for _, x := range isr {
		if !m.low(x.Node) {
			n++
		}
	}
	return n
}

// spared reports whether a follower is sent no batches because its disk is below its reserve and no commit waits for it
// (AC-11).
func (m *Machine) spared(f *progress) bool {
	return m.low(f.node) && !m.inISR(f.node) && (m.cas == nil || !ident.HasMember(m.cas.state.ISR, f.node)) &&
		!slices.ContainsFunc(m.lead.unresolved, func(p proposal) bool { return ident.HasMember(p.state.ISR, f.node) })
}

// joining lists the replicas that may join the ISR in addition to the members that stay.
func (m *Machine) joining(kept []ident.Member) (joining []ident.Member) {
	for i := range m.lead.followers {
		f := &m.lead.followers[i]
		member := ident.Member{Node: f.node, Store: f.ack.store}
		if !ident.HasMember(kept, f.node) && !slices.Contains(m.state.ISR, member) && m.mayJoin(f) {
			joining = append(joining, member)
		}
	}
	return joining
}

// lagging reports whether a member must leave the ISR (AC-5): its process is dead, it was silent for T_isr, it has owed
// an acknowledgement for T_isr, or it came back with another store. Coming back resets neither timer: the silence ends
// when the member has answered for T_isr without a break, and the owed acknowledgement only when it arrives (AC-8).
func (m *Machine) lagging(x ident.Member) bool {
	n, f := m.node(x.Node), m.lead.follower(x.Node)
	if f == nil {
		return true // no longer a replica (CU-8)
	}
	sinceTISR := func(ms int64) bool { return m.nowMS-max(ms, m.lead.sinceMS) >= m.o.ISRMS }
	switch {
	case f.ack.store != 0 && f.ack.store != x.Store:
		return true
	case n.dead || n.known && n.incarnation == 0 && !n.up:
		return true
	case !n.up && sinceTISR(n.lostMS):
		return true
	case m.hasEverything(f):
		return false
	default:
		return sinceTISR(f.lag.sinceMS)
	}
}

// responsive reports whether a replica answers as the registered process, does not flap, and does not lag.
func (m *Machine) responsive(f *progress) bool {
	return m.up(f) && !m.node(f.node).flaps(m.nowMS, m.o.ISRMS) && m.fromPresentProcess(f) && f.ack.valid && f.ack.store != 0 &&
		!m.lagging(ident.Member{Node: f.node, Store: f.ack.store})
}

// mayJoin reports whether a replica is responsive and holds durably everything that may have been committed: the log up
// to max(committed end, epoch start), and the channel state of this epoch (RB-13).
func (m *Machine) mayJoin(f *progress) bool {
	return m.responsive(f) && f.ack.end.Offset >= greatest(m.committed, m.lead.start).Offset &&
		f.ack.state >= max(m.lead.stateCommitted, 1)
}

// inISR reports whether a node has a member in the key's ISR.
func (m *Machine) inISR(n ident.Node) bool { return ident.HasMember(m.state.ISR, n) }

func byNode(a, b ident.Member) int { return cmp.Compare(a.Node, b.Node) }
