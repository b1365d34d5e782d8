package etcdserver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
)

const smallQuota = 1 << 20

// change writes one key, of a fiftieth of the small quota.
func change(t *testing.T, c *clientv3.Client) error {
	_, err := c.Put(t.Context(), "k", strings.Repeat("v", smallQuota/50))
	return err
}

// TestHistoryDoesNotFillTheDatabase: writing is faster than the checks here, so that a write
// is refused now and then, and accepted a little later.
func TestHistoryDoesNotFillTheDatabase(t *testing.T) {
	t.Parallel()
	_, servers := startThree(t, func(o *etcdserver.Options) { etcdserver.SmallQuota(o, smallQuota, pollEvery) })
	c := client(t, servers[0])
	for range 150 {
		require.Eventually(t, func() bool { return change(t, c) == nil }, deadline, time.Millisecond)
	}
}

// TestFullDatabaseTakesWritesAfterARestart: a starting broker has to register.
func TestFullDatabaseTakesWritesAfterARestart(t *testing.T) {
	o := options(t, "n1")
	etcdserver.SmallQuota(&o, smallQuota, time.Hour)
	s := start(t, o)
	wait(t, s)
	c, err := client(t, s), error(nil)
	for err == nil {
		err = change(t, c)
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	s.Stop()
	s = start(t, o)
	wait(t, s)
	require.NoError(t, change(t, client(t, s)))
}

// TestAlarmOfAMemberThatDied: a dead member cannot disarm its alarm, and until then all writes
// are refused.
func TestAlarmOfAMemberThatDied(t *testing.T) {
	t.Parallel()
	members := three(t, func(o *etcdserver.Options) { etcdserver.SmallQuota(o, 4*smallQuota, pollEvery) })
	etcdserver.SmallQuota(&members[2], smallQuota, time.Hour)
	_, servers := startAll(t, members)
	c, err := client(t, servers[2]), error(nil)
	for err == nil {
		err = change(t, c)
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	servers[2].Crash()
	c = client(t, servers[0])
	require.Eventually(t, func() bool { return change(t, c) == nil }, deadline, pollEvery)
}
