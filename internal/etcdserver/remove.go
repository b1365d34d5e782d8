package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// RemoveMember takes another member out of the cluster for good; one that is not
// there is no error. etcd refuses what would leave the others without a majority
// of those that run.
func (s *Server) RemoveMember(ctx context.Context, name string) error {
	members := s.etcd.Server.Cluster().Members()
	at := slices.IndexFunc(members, func(m *membership.Member) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	if members[at].ID == s.etcd.Server.MemberID() {
		return errors.New("etcdserver: a member does not remove itself")
	}
	if _, err := s.etcd.Server.RemoveMember(ctx, uint64(members[at].ID)); err != nil && !errors.Is(err, membership.ErrIDNotFound) {
		return fmt.Errorf("etcdserver: remove %s: %w", name, err)
	}
	return nil
}

// whyStopped asks the others whether they have removed this member: etcd ends it
// then, and says so nowhere but in its log.
func (s *Server) whyStopped(ctx context.Context) error {
	security, err := s.tls.client()
	if err != nil {
		return ErrStopped
	}
	others := s.options.askOthers(ctx, security)
	if len(others) > 0 && !slices.ContainsFunc(others, func(m member) bool { return m.ID == s.MemberID() }) {
		return ErrRemoved
	}
	return ErrStopped
}
