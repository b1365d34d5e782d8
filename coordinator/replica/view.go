package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// View is the part of a machine's state that other goroutines read, behind an atomic pointer.
type View struct {
	Role              Role
	Epoch             ident.Epoch
	Leader            ident.Node
	LeaderIncarnation ident.Incarnation
	Follows           ident.Node     // the leader whose appends are taken in Epoch; "": none yet
	Committed         ident.Position // channels deliver up to here
	End               ident.Position
	EpochStart        ident.Position // leader: of its epoch
	StateIssued       uint64         // leader: the newest channel-state version
	StateCommitted    uint64         // leader: the newest version that every member of the maximal ISR holds
	Stopping          uint64         // leader: a number of a request to stop the channels, answered by ChannelsStopped; 0: they serve
	ISR               []ident.Member
	Replicas          []ident.Node
	MinInSync         int
	Writable          bool // a put gets an offset at once
	Held              int  // puts that wait without an offset
	PendingBytes      int  // appended and not committed, plus held
	UnderReplicated   bool
	SyncOverdue       bool // the disk here has not answered for twice T_isr
	DiskStalled       bool // leader: the same, while the disks of enough other members have answered
	Identities        int  // in the dedupe window
	KeepsIdentified   bool // retention keeps the log from IdentifiedFrom on (DW-5)
	IdentifiedFrom    ident.Offset
	Counters          Counters
}

// Counters count rare events since the machine was made.
type Counters struct {
	Elections, Rollbacks, RolledBack, InDoubt, Truncations uint64
	Shrinks, Grows, Swaps, Restarts                        uint64
}

// Equal reports whether two views are the same. The fields that change most often are compared first.
func (v *View) Equal(o *View) bool {
	return v.End == o.End && v.Committed == o.Committed && v.StateIssued == o.StateIssued && v.StateCommitted == o.StateCommitted &&
		v.Held == o.Held && v.PendingBytes == o.PendingBytes && v.Writable == o.Writable &&
		v.Role == o.Role && v.Stopping == o.Stopping && v.Epoch == o.Epoch && v.Leader == o.Leader && v.LeaderIncarnation == o.LeaderIncarnation && v.Follows == o.Follows &&
		v.EpochStart == o.EpochStart && v.MinInSync == o.MinInSync && v.UnderReplicated == o.UnderReplicated &&
		v.SyncOverdue == o.SyncOverdue && v.Identities == o.Identities && v.KeepsIdentified == o.KeepsIdentified && v.IdentifiedFrom == o.IdentifiedFrom && v.DiskStalled == o.DiskStalled &&
		v.Counters == o.Counters && slices.Equal(v.ISR, o.ISR) && slices.Equal(v.Replicas, o.Replicas)
}

// View returns the current view.
func (m *Machine) View() View {
	v := View{
		Role: m.role, Epoch: m.promised, Leader: m.state.Leader, LeaderIncarnation: m.state.LeaderIncarnation, Follows: m.follow.leader,
		Committed: m.committed, End: m.log.end, ISR: m.state.ISR, Replicas: m.state.Replicas,
		MinInSync: m.state.MinInSync, UnderReplicated: m.state.UnderReplicated(),
		SyncOverdue: m.syncOverdue(), Counters: m.counters,
	}
	v.Identities, v.KeepsIdentified, v.IdentifiedFrom = m.dedupe.Len(), m.marks.keep.some, m.marks.keep.from
	if l := m.lead; l != nil {
		v.EpochStart, v.StateIssued, v.StateCommitted, v.Writable = l.start, l.stateIssued, l.stateCommitted, m.writable()
		v.Held, v.PendingBytes = len(l.held), l.heldBytes+int(m.log.end.Offset-m.committed.Offset)
		v.DiskStalled, v.Stopping = m.diskStalled(), l.transfer.number
	}
	return v
}

// FollowerView is another replica as the leader sees it.
type FollowerView struct {
	Node   ident.Node
	InSync bool
	// Behind is the number of bytes that the replica has not acknowledged.
	Behind int64
	// OwesMS is how long the replica has owed an acknowledgement; 0 if it owes none.
	OwesMS int64
}

// Followers appends the other replicas to dst; none unless this machine leads. nowMS is the time in the terms of Tick.
func (m *Machine) Followers(nowMS int64, dst []FollowerView) []FollowerView {
	if m.lead == nil {
		return dst
	}
	for i := range m.lead.followers {
		f := &m.lead.followers[i]
		out := FollowerView{Node: f.node, InSync: m.inISR(f.node), Behind: int64(m.log.end.Offset - f.ack.end.Offset)}
		if out.Behind > 0 {
			out.OwesMS = max(nowMS-f.lag.sinceMS, 0)
		}
		dst = append(dst, out)
	}
	return dst
}
