package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// leavePause is the pause between two attempts: etcd refuses to remove a member that has been connected for less than 5 s.
const leavePause = 100 * time.Millisecond

// Leave permanently removes this member from its cluster before it stops, because the last of two members could not
// remove the other by itself. The only member of a cluster is not removed.
func (s *Server) Leave(ctx context.Context) error {
	e := s.etcd.Server
	if len(e.Cluster().Members()) < 2 {
		return nil
	}
	for {
		_, err := e.RemoveMember(ctx, s.memberID())
		switch {
		case err == nil, errors.Is(err, etcderrors.ErrStopped):
			return nil
		case !errors.Is(err, etcderrors.ErrUnhealthy) || !concurrency.Sleep(ctx, leavePause):
			return fmt.Errorf("etcd: leave: %w", err)
		}
	}
}

// Remove permanently removes another member from the cluster, if it exists. etcd refuses a removal that would leave the
// running members without a majority.
func (s *Server) Remove(ctx context.Context, name ident.Node) error {
	members := s.etcd.Server.Cluster().Members()
	at := slices.IndexFunc(members, func(m *membership.Member) bool { return m.Name == string(name) })
	if at < 0 {
		return nil
	}
	if members[at].ID == s.etcd.Server.MemberID() {
		return errors.New("etcd: a member does not remove itself")
	}
	if _, err := s.etcd.Server.RemoveMember(ctx, uint64(members[at].ID)); err != nil && !errors.Is(err, membership.ErrIDNotFound) {
		return fmt.Errorf("etcd: remove %s: %w", name, err)
	}
	return nil
}

// whyStopped queries the other members whether this member was removed, because etcd reports that only in its log.
func (s *Server) whyStopped(ctx context.Context) error {
	client, done := s.options.client(s.options.answerTimeout)
	defer done()
	for _, m := range s.etcd.Server.Cluster().Members() {
		if m.ID == s.etcd.Server.MemberID() || len(m.PeerURLs) == 0 {
			continue
		}
		others, err := askMembers(ctx, client, m.PeerURLs[0])
		if err != nil || len(others) == 0 {
			continue
		}
		if !slices.ContainsFunc(others, func(m member) bool { return m.ID == s.memberID() }) {
			return errRemoved
		}
		break
	}
	return ErrStopped
}

// ForceNewCluster starts one member of a larger cluster as a cluster of its own, on loopback, after the majority is
// permanently lost. Entries that only the others had committed are lost. Afterwards the member is started as usual, and
// the others join it as new members, with empty directories.
func ForceNewCluster(ctx context.Context, o Options) (*Server, error) {
	if !Exists(o.Dir) {
		return nil, fmt.Errorf("%w: %s holds no member", ErrOptions, o.Dir)
	}
	o.InitialCluster, o.forceNew = "", true
	s, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.Wait(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// NotifyDeath notifies this member that the process of another member is dead. If the dead member was the leader, its
// followers need not wait for the election timeout. All of them drop their leader, so that requests wait for the next
// one instead of being sent to the dead process, and the first of them by id stands for election: two simultaneous
// candidates would split the votes and cost an election timeout. If the first is dead too, or lacks entries, the
// election timeout passes as usual.
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
