package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// RemoveMember permanently removes another member from the cluster; a member that is not there is
// no error. etcd refuses a removal that would leave the running members without a majority.
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

// whyStopped asks the others whether they have removed this member: etcd ends a removed member
// and reports that only in its log.
func (s *Server) whyStopped(ctx context.Context) error {
	transport := &http.Transport{TLSClientConfig: s.options.clientTLS()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: s.options.answerTimeout}
	for _, m := range s.etcd.Server.Cluster().Members() {
		if m.ID == s.etcd.Server.MemberID() || len(m.PeerURLs) == 0 {
			continue
		}
		others, err := askMembers(ctx, client, m.PeerURLs[0])
		if err != nil || len(others) == 0 {
			continue
		}
		if !slices.ContainsFunc(others, func(m member) bool { return m.ID == s.MemberID() }) {
			return ErrRemoved
		}
		return ErrStopped
	}
	return ErrStopped
}
