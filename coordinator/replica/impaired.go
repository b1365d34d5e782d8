package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// This file recognises leaders that are alive but cannot commit. The loop acts on that, not the machine.

// BelowMinimum reports whether the ISR without the given brokers is below its minimum.
func BelowMinimum(s metadata.PartitionState, without []ident.Node) bool {
	left := 0
	for _, m := range s.ISR {
		if !slices.Contains(without, m.Node) {
			left++
		}
	}
	return left < s.MinInSync
}

// Partitioned reports whether a partition's live leader must be replaced (EL-6): without the brokers that it reports as
// unreachable it is below its minimum, while the asking broker reaches a minimum without it (up). The asking broker
// then reports the leader to its machines as gone, so that a member is elected.
//
// A replica outside the ISR also counts if the leader reports it as unreachable: a leader that loses its followers one
// after another removes the first from the ISR, and that replica will join the ISR of the next leader.
func Partitioned(s metadata.PartitionState, unreachable []ident.Node, up func(ident.Node) bool) bool {
	if len(unreachable) == 0 || !BelowMinimum(s, unreachable) {
		return false
	}
	reached := 0
	for _, n := range s.Replicas {
		if n != s.Leader && up(n) && (ident.HasMember(s.ISR, n) || slices.Contains(unreachable, n)) {
			reached++
		}
	}
	return reached >= s.MinInSync
}

// syncOverdue reports whether the disk here has owed a sync for twice T_isr. The limit is not lower, because a change
// of leader is expensive.
func (m *Machine) syncOverdue() bool {
	return len(m.log.pending) > 0 && m.nowMS-m.log.pending[0].atMS >= 2*m.o.ISRMS
}

// diskStalled reports (EL-8) whether this leader's sync is overdue while a minimum of other members is ahead of it.
func (m *Machine) diskStalled() bool {
	if !m.syncOverdue() {
		return false
	}
	l, durable, able := m.lead, &m.log.durable, 0
	for _, x := range m.state.ISR {
		f := l.follower(x.Node)
		if f == nil || !m.up(f) {
			continue
		}
		if !l.open || f.ack.end.Offset > durable.end.Offset || f.ack.state > durable.state.in(l.epoch) {
			able++
		}
	}
	return able >= m.state.MinInSync
}
