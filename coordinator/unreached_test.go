package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeaderThatReachesOnlyTheMetadataIsReplaced: a leader cut from its followers
// keeps its registration, so nobody may call it dead; it says itself that it is
// cut off, and the members that reach each other go on.
func TestLeaderThatReachesOnlyTheMetadataIsReplaced(t *testing.T) {
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
}

// TestLeaderThatIsCutFromOneFollowerStays: it still has its minimum.
func TestLeaderThatIsCutFromOneFollowerStays(t *testing.T) {
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
}
