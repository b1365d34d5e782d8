package etcd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

const smallQuota = 1 << 20

// change writes one key, of a fiftieth of the small quota.
func change(t *testing.T, c *clientv3.Client) error {
	_, err := c.Put(t.Context(), "k", strings.Repeat("v", smallQuota/50))
	return err
}

// TestHistoryDoesNotFillTheDatabase: writing is faster than the checks here, so that a write
// is refused occasionally, and accepted a little later.
func TestHistoryDoesNotFillTheDatabase(t *testing.T) {
	t.Parallel()
	_, servers := startThree(t, func(o *etcd.Options) { etcd.SmallQuota(o, smallQuota, 20*time.Millisecond) })
	c := client(t, servers[0])
	for range 100 { // twice the quota
		wait.Until(t, func() bool { return change(t, c) == nil }, "a write is accepted")
	}
}

// TestFullDatabaseTakesWritesAfterARestart: a starting broker has to register.
func TestFullDatabaseTakesWritesAfterARestart(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	etcd.SmallQuota(&o, smallQuota, time.Hour)
	s := start(t, o)
	ready(t, s)
	c := client(t, s)
	wait.Until(t, func() bool { return errors.Is(change(t, c), rpctypes.ErrNoSpace) }, "the database is full")
	s.Stop()
	s = start(t, o)
	ready(t, s)
	put(t, s, "k")
}

// TestAlarmOfAMemberThatDied: a dead member cannot disarm its alarm, and until then all writes
// are refused.
func TestAlarmOfAMemberThatDied(t *testing.T) {
	t.Parallel()
	members := three(t, func(o *etcd.Options) { etcd.SmallQuota(o, 4*smallQuota, 20*time.Millisecond) })
	etcd.SmallQuota(&members[2], smallQuota, time.Hour)
	_, servers := startAll(t, members)
	c := client(t, servers[2])
	wait.Until(t, func() bool { return errors.Is(change(t, c), rpctypes.ErrNoSpace) }, "the database is full")
	servers[2].Crash()
	c = client(t, servers[0])
	wait.Until(t, func() bool { return change(t, c) == nil }, "the alarm is disarmed")
}

// TestAMemberEndsWhileItMakesRoom: a removed member closes its database by itself.
func TestAMemberEndsWhileItMakesRoom(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	etcd.SmallQuota(&o, smallQuota, time.Hour)
	s := start(t, o)
	ready(t, s)
	c := client(t, s)
	wait.Until(t, func() bool { return errors.Is(change(t, c), rpctypes.ErrNoSpace) }, "the database is full")
	s.Crash()
	require.Error(t, s.FreeSpace(t.Context()))
}
