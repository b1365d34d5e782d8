package coordinator_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/stretchr/testify/require"
)

// TestPutsAreRefusedWhileAReplicaIsShortOfSpace: a follower below its reserve
// stops the puts of its partitions everywhere, definitely and by name; consumers
// drain on, and puts are taken again when there is room.
func TestPutsAreRefusedWhileAReplicaIsShortOfSpace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const reserve = 1 << 30
		c := newClusterOf(t, cluster{size: 3, minFree: reserve})
		require.NoError(t, c.put("n1", "orders", "m0"))
		require.NoError(t, c.put("n1", "orders", "m1"))
		c.whole("orders")
		leader := c.leader("orders")
		follower := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]

		c.disks[follower].SetFreeBytes(reserve - 1)
		var err error
		c.eventually(func() bool { err = c.put(leader, "orders", "probe"); return err != nil }, "puts are still taken")
		require.ErrorIs(t, err, edge.ErrDiskFull)
		require.ErrorIs(t, c.put(follower, "orders", "refused"), edge.ErrDiskFull, "forwarded")
		for _, b := range c.nodes[leader].Cluster().Brokers {
			require.Equal(t, string(b.Name) == follower, b.LowSpace, b.Name)
		}
		got := c.drain(follower, "orders", 2)
		require.NotContains(t, got, "refused")

		c.disks[follower].SetFreeBytes(reserve)
		c.eventually(func() bool { return c.put(follower, "orders", "after") == nil }, "puts are still refused")
		c.whole("orders")
	})
}

// TestBrokerThatIsShortOfSpaceIsForgottenWhenItDies: its in-sync membership ends, and its
// full disk stops no puts any more.
func TestBrokerThatIsShortOfSpaceIsForgottenWhenItDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const reserve = 1 << 30
		c := newClusterOf(t, cluster{size: 3, minFree: reserve})
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		follower := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.disks[follower].SetFreeBytes(reserve - 1)
		c.eventually(func() bool { return c.put(leader, "orders", "probe") != nil }, "puts are still taken")
		c.kill(follower)
		c.eventually(func() bool { return c.put(leader, "orders", "after") == nil }, "puts are still refused")
	})
}

// TestFullDiskOfNewestFilesHeals: all that fills the disk is in the newest file of a
// log, which the next put would go to. When it is consumed, it goes.
func TestFullDiskOfNewestFilesHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, maxDisk: 1 << 20})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		put := 0
		c.eventually(func() bool {
			err := c.put("n2", "orders", strings.Repeat("x", 64<<10))
			if err == nil {
				put++
			}
			return errors.Is(err, edge.ErrDiskFull)
		}, "puts are still taken")
		s := c.subscribe("n1", "orders", "billing", 100)
		s.finish(s.take(put)...)
		c.eventually(func() bool { return c.put("n2", "orders", "after") == nil }, "puts are refused for good")
		s.finish(s.take(1)...)
		c.whole("orders")
	})
}

// TestFullDiskOfAFollowersNewestFileHeals: the files of a follower end elsewhere than
// its leader's, whose own log is small again. So it is, too, with a follower of a build
// that took the batch that begins a new file for an empty one.
func TestFullDiskOfAFollowersNewestFileHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, maxDisk: 1 << 20, segmentBytes: 1})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.whole("orders")
		leader := c.leader("orders")
		follower := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.segmentBytes = 0
		c.kill(follower)
		c.restart(follower)
		c.whole("orders")
		put := 0
		c.eventually(func() bool {
			err := c.put(leader, "orders", strings.Repeat("x", 32<<10))
			if err == nil {
				put++
			}
			return errors.Is(err, edge.ErrDiskFull)
		}, "puts are still taken")
		s := c.subscribe(leader, "orders", "billing", 100)
		s.finish(s.take(put)...)
		c.eventually(func() bool { return c.put(leader, "orders", "after") == nil }, "puts are refused for good")
		require.Equal(t, leader, c.leader("orders"))
	})
}
