package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
)

// leavePause is the pause between two attempts: etcd refuses to remove a member that has been connected for less than 5 s.
const leavePause = 100 * time.Millisecond

// Leave permanently removes this member from its cluster before it stops, because the last of two members could not
// remove the other alone. The last member of a cluster stays.
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

// whyStopped asks the others whether they have removed this member: etcd reports that only in its log.
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
			return ErrRemoved
		}
		break
	}
	return ErrStopped
}

// ForceNewCluster starts a member of several as a cluster with no other member, on loopback, after the majority is permanently
// lost. Entries that only the others had committed are lost. Afterwards the member is started as usual, and the others join it
// as new members, with empty directories.
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
