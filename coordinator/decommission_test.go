package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// TestDecommissionedBrokerIsFreedOfReplicas: the leader of a topic is to leave; its replica goes to the broker that had
// none, then its leadership, then its files; it may then be permanently stopped.
func TestDecommissionedBrokerIsFreedOfReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		ctx := context.Background()
		require.NoError(t, do(ctx, c.nodes["n1"], operation{Verb: "topic.create", Topic: "orders",
			Args: map[string]string{"replication_factor": "3", "partitions": "2"}}))
		for i := range 20 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		leaving := c.leader("orders")
		require.ErrorIs(t, do(ctx, c.nodes["n1"], operation{Verb: "broker.decommission", Args: map[string]string{"node": "n9"}}), outcome.ErrBrokerNotFound)
		require.False(t, c.nodes[leaving].Decommissioned())
		require.NoError(t, do(ctx, c.nodes["n1"], operation{Verb: "broker.decommission", Args: map[string]string{"node": leaving}}))
		witness := map[string]string{"n1": "n2", "n2": "n3", "n3": "n4", "n4": "n1"}[leaving]
		c.eventually(func() bool {
			v, ok := c.view(witness, "orders")
			for _, p := range v.Partitions {
				ok = ok && !slices.Contains(p.Replicas, ident.Node(leaving)) && len(p.ISR) == 3 && len(p.Replicas) == 3 && p.Leader != ""
			}
			return ok
		}, "it is not freed")
		c.eventually(c.nodes[leaving].Decommissioned, "it does not know that it is")
		require.False(t, c.nodes[witness].Decommissioned())
		c.eventually(func() bool {
			names, err := c.disks[leaving].List("/data/trash")
			return err == nil && len(names) > 0
		}, "its files stay")
		require.NoError(t, c.put(leaving, "orders", "its edges still serve"))
		require.NoError(t, do(ctx, c.nodes[witness], operation{Verb: "topic.create", Topic: "later",
			Args: map[string]string{"replication_factor": "3"}}))
		v, _ := c.view(witness, "later")
		require.NotContains(t, v.Partitions[0].Replicas, ident.Node(leaving), "new topics go elsewhere")
		c.kill(leaving)
		require.Len(t, c.drain(witness, "orders", 21), 21)
		c.eventually(func() bool {
			return !slices.ContainsFunc(c.nodes[witness].Cluster().Brokers, func(v api.BrokerView) bool { return string(v.Name) == leaving })
		}, "it is not forgotten")
	})
}
