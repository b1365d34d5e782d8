package coordinator_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// nsqadmin's "tombstone node" hides a node from the lookup services and then asks that node to delete the topic. A
// stock nsqd loses its own messages by that; here it would be the whole cluster's.
func TestTombstonedNodeDeletesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		ctx := t.Context()
		remove := operation{Verb: "topic.delete", Topic: "orders", Accept: ofNSQAdmin}
		require.NoError(t, do(ctx, c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders"}))
		c.whole("orders")
		node := ""
		for _, b := range c.nodes["n1"].Cluster().Brokers {
			if b.Name == "n2" {
				node = b.HTTPAddress
			}
		}
		require.NoError(t, c.nodes["n1"].Tombstone("orders", node))
		require.ErrorIs(t, c.nodes["n1"].Tombstone("orders", strings.Repeat("x", 261)), outcome.ErrInvalid, "each broker keeps thousands of them")
		require.NoError(t, do(ctx, c.nodes["n2"], remove), "nsqadmin sees no failure")
		for _, name := range []string{"n1", "n2", "n3"} {
			require.Contains(t, c.nodes[name].Topics(), "orders", name)
		}
		require.NoError(t, c.nodes["n1"].Tombstone("nothing", node))
		require.NoError(t, do(ctx, c.nodes["n3"], remove), "another broker deletes")
		require.NotContains(t, c.nodes["n3"].Topics(), "orders")
	})
}

// TestTombstoneOfABrokerThatDoesNotAnswer: a broker that missed the deletion would delete
// the next topic of the name, and not know that its own copy was meant. The list of
// brokers that do not answer shows it. Other silent brokers do no harm.
func TestTombstoneOfABrokerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, do(t.Context(), c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders"}))
		c.whole("orders")
		addresses := map[string]string{}
		for _, b := range c.nodes["n1"].Cluster().Brokers {
			addresses[string(b.Name)] = b.HTTPAddress
		}
		c.net.isolate("n1", "n2")
		require.ErrorIs(t, c.nodes["n1"].Tombstone("orders", addresses["n2"]), outcome.ErrUnavailable)
		require.NoError(t, c.nodes["n1"].Tombstone("orders", addresses["n3"]))
	})
}
