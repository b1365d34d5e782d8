package etcd_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestNotifyDeathOfTheLeader: members that are notified of the leader's death do not wait for
// the election timeout. The death of another member has no effect.
func TestNotifyDeathOfTheLeader(t *testing.T) {
	t.Parallel()
	members, servers := steady(t, 3)
	leader, rest := leaderOf(t, servers)
	name := func(s *etcd.Server) string { return members[slices.Index(servers, s)].Name }
	require.NoError(t, rest[0].NotifyDeath(t.Context(), ident.Node(name(rest[1]))))
	require.NoError(t, rest[0].NotifyDeath(t.Context(), "unknown"))
	require.NoError(t, leader.NotifyDeath(t.Context(), ident.Node(name(leader))), "itself")
	require.True(t, leader.Leads())

	// The first of the others is elected only if it lacks no entry.
	wait.Until(t, func() bool {
		last, done := leader.Settled()
		for _, s := range rest {
			has, settled := s.Settled()
			done = done && settled && has == last
		}
		return done
	}, "all members have all entries")
	leader.Crash()
	var notified sync.WaitGroup
	for _, s := range rest {
		notified.Go(func() { require.NoError(t, s.NotifyDeath(t.Context(), ident.Node(name(leader)))) })
	}
	notified.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), longElection*3/4)
	defer cancel()
	_, err := client(t, rest[0]).Put(ctx, "k", "v")
	require.NoError(t, err)
}

// TestLearnerDoesNotSucceed: the first possible successor by id is a learner. It has no vote
// and cannot stand for election, so the voter behind it stands. The leader still runs here: a
// wrong notification costs only its leadership, and the test needs no timeout.
func TestLearnerDoesNotSucceed(t *testing.T) {
	t.Parallel()
	members, servers := startAll(t, several(t, 2))
	ctx := wait.Context(t)
	leader, rest := leaderOf(t, servers)
	rest[0].AddLearner(1, "http://"+freeAddress(t))
	list, err := client(t, rest[0]).MemberList(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, list.Members[0].ID)
	require.True(t, list.Members[0].IsLearner)

	// The leader that still runs may win its leadership back before it grants its vote.
	wait.Until(t, func() bool {
		return rest[0].NotifyDeath(ctx, ident.Node(members[slices.Index(servers, leader)].Name)) == nil && rest[0].Leads()
	}, "the voter leads")
	crashAll(servers...)
}

// crashAll ends members in parallel: each of them takes a second.
func crashAll(servers ...*etcd.Server) {
	var ends sync.WaitGroup
	for _, s := range servers {
		ends.Go(func() { s.Crash(); s.Stop() })
	}
	ends.Wait()
}
