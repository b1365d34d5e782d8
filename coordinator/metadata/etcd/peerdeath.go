package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// NotifyDeath notifies this member that the process of another one is dead. If it was the leader, its followers need not wait
// for the election timeout. All of them drop their leader, so that requests wait for the next one instead of being sent to the
// dead process, and the first of them by id stands for election: two at the same time would split the votes, and lose an
// election timeout. If the first is dead too, or lacks entries, the election timeout passes as usual.
//
// A wrong notification only costs the live leader its leadership: raft elects safely at any time. The messages are raft's own,
// for a leader that transfers its leadership and for one whose death is detected elsewhere.
func (s *Server) NotifyDeath(ctx context.Context, name ident.Node) error {
	dead, first := s.successor(string(name))
	if dead == raft.None || dead != uint64(s.etcd.Server.Leader()) {
		return nil
	}
	if err := s.step(ctx, dead, raftpb.MsgForgetLeader); err != nil || !first {
		return err
	}
	return s.step(ctx, dead, raftpb.MsgTimeoutNow)
}

// successor returns a member's id, or raft.None, and whether this member is the first of its possible successors.
func (s *Server) successor(name string) (dead uint64, first bool) {
	var next *membership.Member
	for _, m := range s.etcd.Server.Cluster().Members() { // sorted by id
		switch {
		case m.Name == name:
			dead = uint64(m.ID)
		case next == nil && !m.IsLearner:
			next = m
		}
	}
	return dead, next != nil && next.ID == s.etcd.Server.MemberID()
}

// step passes a message to this member's raft as if the dead leader had sent it, without a term: it is valid in every term.
func (s *Server) step(ctx context.Context, dead uint64, what raftpb.MessageType) error {
	self := uint64(s.etcd.Server.MemberID())
	if err := s.etcd.Server.Process(ctx, &raftpb.Message{Type: &what, From: &dead, To: &self}); err != nil {
		return fmt.Errorf("etcd: %s after the leader's death: %w", what, err)
	}
	return nil
}
