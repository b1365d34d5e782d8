package replica

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Role is what a machine does at present.
type Role uint8

// The roles.
const (
	// Idle: this node is not a replica, or the machine has not seen the key yet.
	Idle Role = iota
	// Follower takes appends.
	Follower
	// Candidate: the leader is gone, and this replica asks the other members before it proposes itself.
	Candidate
	// Electing: this replica leads an epoch whose marker is not committed yet, so it serves nothing.
	Electing
	// Leader: accepts puts and delivers. After a rollback it accepts puts once its marker is committed (RB-14).
	Leader
	// Stopped: the store has failed. The machine acknowledges nothing.
	Stopped
)

// String names the role as logs and /v1/cluster show it.
func (r Role) String() string {
	return [...]string{"idle", "follower", "candidate", "electing", "leader", "stopped"}[r]
}

func (m *Machine) observe(s metadata.PartitionState) {
	if s.Revision <= m.state.Revision {
		return
	}
	m.state = s.Clone()
	m.campaign = nil
	if m.lead != nil {
		m.lead.resolve(s.Revision)
		m.lead.review = true
	}
	m.applyRole()
}

// applyRole takes the role that the key, as last seen, gives this machine. A leadership belongs to one incarnation and
// one store (ID-2, ID-3), so a restarted broker leads nothing before it is elected again.
func (m *Machine) applyRole() {
	s := &m.state
	mine := s.Leader == m.self.Node && m.registered() && m.isMember() && s.LeaderIncarnation == m.self.Incarnation
	switch {
	case mine && m.lead != nil && m.lead.epoch == s.Epoch:
		m.syncFollowers()
	case mine && m.lead != nil && m.lead.rollback && s.Epoch == m.lead.epoch+1:
		m.rollBack(s.Epoch)
	case mine && s.Epoch > m.promised:
		m.becomeLeader(s.Epoch)
	case m.campaign == nil:
		m.stepDown()
		m.becomeFollower()
	}
}

// registered reports whether the node is registered under this machine's incarnation.
func (m *Machine) registered() bool {
	n := m.node(m.self.Node)
	return n.known && n.incarnation == m.self.Incarnation
}

// isMember reports whether this store is in the ISR.
func (m *Machine) isMember() bool {
	return slices.Contains(m.state.ISR, ident.Member{Node: m.self.Node, Store: m.self.Store})
}

// becomeFollower follows, if the key names this node as a replica.
func (m *Machine) becomeFollower() {
	m.role = Idle
	if slices.Contains(m.state.Replicas, m.self.Node) {
		m.role = Follower
	}
}
