package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Lacks reports whether an in-sync set is below its minimum without some brokers.
func Lacks(s meta.PartitionState, without []ident.Node) bool {
	left := 0
	for _, m := range s.ISR {
		if !slices.Contains(without, m.Node) {
			left++
		}
	}
	return left < s.MinInSync
}

// hung reports whether the disk here has owed a sync for twice T_isr. Twice, because to
// change a leader costs more than to let a member go.
func (m *Machine) hung() bool {
	return len(m.log.pending) > 0 && m.now-m.log.pending[0].atMS >= 2*m.o.ISRMS
}

// hindered reports whether this leader's disk hangs while enough other members answer,
// and hold what it owes.
func (m *Machine) hindered() bool {
	if !m.hung() {
		return false
	}
	l, durable, able := m.lead, &m.log.durable, 0
	for _, x := range m.state.ISR {
		f := l.follower(x.Node)
		if f == nil || !f.up(m) {
			continue
		}
		if !l.open || f.match.Offset > durable.end.Offset || f.confirmAcked > durable.confirm.in(l.epoch) {
			able++
		}
	}
	return able >= m.state.MinInSync
}

// CutOff reports whether a partition's living leader, which says whom it cannot
// reach, lacks its minimum because of them, while whoever asks reaches one without
// it. The leader is then told to the machine as gone, and any member may be elected:
// what is committed, all of them hold. A replica that was let go counts if the leader
// cannot reach it either: one that loses its followers one after the other lets go of
// the first, and that one will join its successor, but never it.
func CutOff(s meta.PartitionState, unreached []ident.Node, up func(ident.Node) bool) bool {
	if len(unreached) == 0 || !Lacks(s, unreached) {
		return false
	}
	reached := 0
	for _, n := range s.Replicas {
		member := slices.ContainsFunc(s.ISR, func(m ident.Member) bool { return m.Node == n })
		if n != s.Leader && up(n) && (member || slices.Contains(unreached, n)) {
			reached++
		}
	}
	return reached >= s.MinInSync
}
