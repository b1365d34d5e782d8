package etcdserver_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
)

// TestDeathOfTheLeaderIsKnown: who is told that the leader died does not wait out
// the election timeout. Of other deaths nothing follows.
func TestDeathOfTheLeaderIsKnown(t *testing.T) {
	if testing.Short() {
		t.Skip("members with long timeouts take seconds to start")
	}
	const election = 2 * time.Second
	members, servers := startThree(t, func(o *etcdserver.Options) { o.Election = election })
	leader, rest := leaderOf(t, servers)
	name := func(s *etcdserver.Server) string { return members[slices.Index(servers, s)].Name }
	require.NoError(t, rest[0].Died(t.Context(), name(rest[1])))
	require.NoError(t, rest[0].Died(t.Context(), "stranger"))
	require.NoError(t, leader.Died(t.Context(), name(leader)), "itself")
	require.True(t, leader.Leads())

	began := time.Now()
	leader.Crash()
	var told sync.WaitGroup
	for _, s := range rest {
		told.Go(func() { require.NoError(t, s.Died(t.Context(), name(leader))) })
	}
	told.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err := client(t, rest[0]).Put(ctx, "k", "v")
	require.NoError(t, err)
	require.Less(t, time.Since(began), election*3/4)
}
