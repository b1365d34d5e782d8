package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// View is what others may know of the machine. The loop publishes it behind an
// atomic pointer; readers never see half a change.
type View struct {
	Role              Role
	Epoch             ident.Epoch
	Leader            ident.Node
	LeaderIncarnation ident.Incarnation
	Follows           ident.Node // whose appends are taken in Epoch, "" = nobody's yet
	Committed         ident.Position
	End               ident.Position
	EpochStart        ident.Position // of the epoch this machine leads
	Issued            uint64         // leader: newest confirm
	Confirmed         uint64         // leader: highest confirm held by all of the ISR
	ISR               []ident.Member
	Replicas          []ident.Node
	MinInSync         int
	Writable          bool // puts are taken now (they may still be held)
	Held              int  // puts waiting without an offset
	PendingBytes      int  // appended and not committed, plus held
	UnderReplicated   bool
	Hung              bool // the disk here does not answer
	Hindered          bool // leader: nor do the others need it
	Counters          Counters
}

// Counters of rare events, since the machine was made.
type Counters struct {
	Elections, Rollbacks, RolledBack, InDoubt, Truncations uint64
	Shrinks, Grows, Swaps, Restarts                        uint64
}

// Equal reports whether two views show the same. What moves most often is
// compared first.
func (v *View) Equal(o *View) bool {
	return v.End == o.End && v.Committed == o.Committed && v.Issued == o.Issued && v.Confirmed == o.Confirmed &&
		v.Held == o.Held && v.PendingBytes == o.PendingBytes && v.Writable == o.Writable &&
		v.Role == o.Role && v.Epoch == o.Epoch && v.Leader == o.Leader && v.LeaderIncarnation == o.LeaderIncarnation && v.Follows == o.Follows &&
		v.EpochStart == o.EpochStart && v.MinInSync == o.MinInSync && v.UnderReplicated == o.UnderReplicated && v.Hung == o.Hung && v.Hindered == o.Hindered &&
		v.Counters == o.Counters && slices.Equal(v.ISR, o.ISR) && slices.Equal(v.Replicas, o.Replicas)
}

// View is what others may know.
func (m *Machine) View() View {
	v := View{
		Role: m.role, Epoch: m.promised, Leader: m.state.Leader, LeaderIncarnation: m.state.LeaderIncarnation, Follows: m.follow.leader,
		Committed: m.visible(), End: m.log.end, ISR: m.state.ISR, Replicas: m.state.Replicas,
		MinInSync: m.state.MinInSync, UnderReplicated: len(m.state.ISR) < len(m.state.Replicas),
		Hung: m.hung(), Counters: m.counters,
	}
	if l := m.lead; l != nil {
		v.EpochStart, v.Issued, v.Confirmed, v.Writable = l.start, l.confirmN, l.confirmed, m.writable()
		v.Held, v.PendingBytes = len(l.held), l.heldBytes+int(m.log.end.Offset-m.committed.Offset)
		v.Hindered = m.hindered()
	}
	return v
}

// visible is how far the log may be shown to anybody.
func (m *Machine) visible() ident.Position {
	if m.broken(BreakVisible) {
		return m.log.end
	}
	return m.committed
}
