package etcdserver

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Died tells this member that another one's process is gone for certain. If that
// one led, its followers need not wait out the election timeout: all of them
// forget it, so that requests wait for the next leader instead of being sent to
// nobody, and the first by id stands for election. One only: two who stand at the
// same time get a vote each, and lose an election timeout. If the first is dead
// too, or lacks what another one has, the timeout is waited out as ever.
//
// A word that is wrong costs the living leader its office and nothing else: raft
// elects safely whoever stands at whatever time. The messages are raft's own, for
// a leader that hands over and for one that is known from elsewhere to be dead.
func (s *Server) Died(ctx context.Context, name string) error {
	dead, first := s.succession(name)
	if dead == raft.None || dead != uint64(s.etcd.Server.Leader()) {
		return nil
	}
	if err := s.tell(ctx, dead, raftpb.MsgForgetLeader); err != nil || !first {
		return err
	}
	return s.tell(ctx, dead, raftpb.MsgTimeoutNow)
}

// succession gives a member's id, raft.None if there is no such member, and
// whether this one is the first of those who may follow it.
func (s *Server) succession(name string) (dead uint64, first bool) {
	var heir *membership.Member
	for _, m := range s.etcd.Server.Cluster().Members() { // sorted by id
		switch {
		case m.Name == name:
			dead = uint64(m.ID)
		case heir == nil && !m.IsLearner:
			heir = m
		}
	}
	return dead, heir != nil && heir.ID == s.etcd.Server.MemberID()
}

// tell hands a message to this member's raft as if the dead leader had sent it.
// It has no term: it is meant for whatever term there is.
func (s *Server) tell(ctx context.Context, dead uint64, what raftpb.MessageType) error {
	self := uint64(s.etcd.Server.MemberID())
	if err := s.etcd.Server.Process(ctx, &raftpb.Message{Type: &what, From: &dead, To: &self}); err != nil {
		return fmt.Errorf("etcdserver: %s after the leader's death: %w", what, err)
	}
	return nil
}
