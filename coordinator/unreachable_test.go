package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// TestLeaderThatReachesOnlyTheMetadataIsReplaced: a leader that is partitioned from its
// followers keeps its registration, so it does not count as dead. It publishes that it is
// partitioned, and the members that reach each other elect a leader.
func TestLeaderThatReachesOnlyTheMetadataIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		others := map[string][]string{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}[leader]
		before := c.nodes[leader].Incarnation()
		c.net.isolate(leader, others...)
		began := time.Now()
		require.NoError(t, c.put(others[0], "orders", "m1"))
		t.Logf("first put after the cut: %s", time.Since(began))
		require.Contains(t, others, c.leader("orders"))
		require.Equal(t, before, c.nodes[leader].Incarnation(), "it was replaced although it lives")
		require.Error(t, c.nodes[leader].Ready(), "clients had better go elsewhere")
		require.NoError(t, c.nodes[others[0]].Ready())
		c.net.heal()
		c.whole("orders")
		require.NoError(t, c.nodes[leader].Ready())
		require.NoError(t, c.put(leader, "orders", "m2"))
		require.Len(t, c.drain(leader, "orders", 3), 3)
	})
}

// TestLeaderThatLosesItsFollowersOneByOneIsReplaced: it lets go of the first, and
// has one member left, that it does not reach either.
func TestLeaderThatLosesItsFollowersOneByOneIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		others := map[string][]string{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}[leader]
		c.net.isolate(leader, others[0])
		c.eventually(func() bool { v, _ := c.view(leader, "orders"); return len(v.Partitions[0].ISR) == 2 }, "no shrink")
		c.net.isolate(leader, others[1])
		require.NoError(t, c.put(others[0], "orders", "m1"))
		require.Contains(t, others, c.leader("orders"))
		c.net.heal()
		c.whole("orders")
		require.Len(t, c.drain(leader, "orders", 2), 2)
	})
}

// TestLeaderThatIsCutFromOneFollowerStays: it still has its minimum.
func TestLeaderThatIsCutFromOneFollowerStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		before, ok := c.view(leader, "orders")
		require.True(t, ok)
		c.net.isolate(leader, other)
		require.NoError(t, c.put(leader, "orders", "m1"))
		c.eventually(func() bool { v, _ := c.view(leader, "orders"); return len(v.Partitions[0].ISR) == 2 }, "no shrink")
		require.NoError(t, c.put(leader, "orders", "m2"))
		after, _ := c.view(leader, "orders")
		require.Equal(t, before.Partitions[0].Epoch, after.Partitions[0].Epoch)
		c.net.heal()
		c.whole("orders")
	})
}

// TestBrokerWithoutMetadataFindsTheNextLeader: the metadata does not notify the broker of
// the new leader, but its replica follows that leader.
func TestBrokerWithoutMetadataFindsTheNextLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		blind := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		require.NoError(t, c.nodes[blind].CreateChannel(t.Context(), "orders", "drain", "", false))
		c.sessions[blind].Cut()
		c.kill(leader)
		require.NoError(t, c.put(blind, "orders", "m1"))
		require.NotEqual(t, blind, c.leader("orders"))
		require.Len(t, c.drain(blind, "orders", 2), 2)
		c.sessions[blind].Heal()
		c.restart(leader)
		c.whole("orders")
	})
}

// registration reads a broker's.
func (c *cluster) registration(name string) (metadata.NodeState, metadata.Entry) {
	c.t.Helper()
	e, err := c.meta.Get(c.t.Context(), metadata.Keys{Cluster: "test"}.Live(ident.Node(name)))
	require.NoError(c.t, err)
	s, err := metadata.DecodeNode(e)
	require.NoError(c.t, err)
	return s, e
}

// cutsOff writes into a broker's registration that it does not reach others, as its own transaction does.
func (c *cluster) cutsOff(name string, from ...ident.Node) {
	c.t.Helper()
	s, e := c.registration(name)
	s.Unreachable = from
	c.overwrite(e, metadata.Put{Key: e.Key, Value: metadata.Encode(s), Lease: e.Lease})
}

// overwrite puts a key that no other client changes at the same time.
func (c *cluster) overwrite(was metadata.Entry, now metadata.Put) {
	c.t.Helper()
	ok, _, err := c.meta.Txn(c.t.Context(), []metadata.Compare{{Key: was.Key, Create: -1, Mod: was.Mod}}, []metadata.Put{now})
	require.NoError(c.t, err)
	require.True(c.t, ok)
}

// TestListOfUnreachableBrokersIsWithdrawn: a leader publishes that it is partitioned, and the
// answer is lost. Then the partition heals. As long as the published list stays, the leader
// is replaced whenever it leads, so it has to withdraw the list.
func TestListOfUnreachableBrokersIsWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		others := map[string][]ident.Node{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}[leader]
		c.cutsOff(leader, others...)
		c.eventually(func() bool {
			now, _ := c.registration(leader)
			v, _ := c.view(leader, "orders")
			return len(now.Unreachable) == 0 && v.Partitions[0].Leader == ident.Node(leader)
		}, "it does not take its word back, or does not lead again")
	})
}

// TestPartitionGoesToALeaderThatIsCutOff: a list of unreachable brokers that a broker
// published before it became leader counts too, although the list does not change any more.
func TestPartitionGoesToALeaderThatIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		was := c.leader("orders")
		next := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[was]
		others := map[string][]ident.Node{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}[next]
		c.sessions[next].Cut() // it learns nothing and takes nothing back
		c.cutsOff(next, others...)
		topic, ok := c.nodes[was].Topic("orders")
		require.True(t, ok)
		e, err := c.meta.Get(t.Context(), metadata.Keys{Cluster: "test"}.Partition(topic.Partition(0)))
		require.NoError(t, err)
		s, err := metadata.DecodePartition(e)
		require.NoError(t, err)
		s.Leader, s.LeaderIncarnation, s.Epoch = ident.Node(next), c.nodes[next].Incarnation(), s.Epoch+1
		c.overwrite(e, metadata.Put{Key: e.Key, Value: metadata.Encode(s)})
		require.NoError(t, c.put(was, "orders", "m1"))
		c.sessions[next].Heal()
		c.whole("orders")
	})
}

// TestLeaderThatNeverReachedAnybodyIsReplaced: all brokers were started again, and the
// one that leads has not met the others since.
func TestLeaderThatNeverReachedAnybodyIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.whole("orders")
		leader := c.leader("orders")
		others := map[string][]string{"n1": {"n2", "n3"}, "n2": {"n3", "n1"}, "n3": {"n1", "n2"}}[leader]
		for _, name := range all {
			c.sessions[name].Cut() // no registration is revoked
		}
		for _, name := range all {
			c.kill(name)
		}
		c.net.isolate(leader, others...)
		c.restart(leader)
		c.eventually(func() bool { now, _ := c.registration(leader); return len(now.Unreachable) == 2 }, "it does not say that it is cut off")
		c.restart(others[0])
		c.restart(others[1])
		require.NoError(t, c.put(others[0], "orders", "m1"))
		require.Contains(t, others, c.leader("orders"))
		c.net.heal()
		c.whole("orders")
	})
}
