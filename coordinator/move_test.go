package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// administer asks one broker for an operation.
func (c *cluster) administer(on, verb, topic string, args map[string]string) error {
	return c.nodes[on].Do(context.Background(), edge.AdminOp{Verb: verb, Topic: topic, Args: args})
}

// arranged waits until every partition of a topic is as it should be: replicas in
// sync, nothing on its way, and what the caller wants to see.
func (c *cluster) arranged(on, topic string, ok func(edge.PartitionView) bool) {
	c.t.Helper()
	c.eventually(func() bool {
		v, found := c.view(on, topic)
		for _, p := range v.Partitions {
			found = found && len(p.Target) == 0 && len(p.Replicas) == v.ReplicationFactor && len(p.ISR) == v.ReplicationFactor &&
				p.MinInSync == v.MinInSync && p.Leader != "" && ok(p)
		}
		return found
	}, topic+" is not arranged")
}

// TestReplicaIsMoved: the leader's replica goes to the broker that had none, in
// the same place, so that the leadership goes with it; the old one is trashed.
func TestReplicaIsMoved(t *testing.T) {
	c := newCluster(t, 4)
	require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "3"}))
	for i := range 20 {
		require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
	}
	v, _ := c.view("n1", "orders")
	from, to := v.Partitions[0].Replicas[0], ident.Node("")
	for name := range c.nodes {
		if !slices.Contains(v.Partitions[0].Replicas, ident.Node(name)) {
			to = ident.Node(name)
		}
	}
	move := func(partition string, from, to ident.Node) error {
		return c.administer("n2", "topic.move", "orders", map[string]string{"partition": partition, "from": string(from), "to": string(to)})
	}
	require.ErrorIs(t, move("1", from, to), edge.ErrInvalid)
	require.ErrorIs(t, move("0", from, v.Partitions[0].Replicas[1]), edge.ErrInvalid, "it has one already")
	require.ErrorIs(t, move("0", from, "n9"), edge.ErrInvalid)
	require.ErrorIs(t, move("0", "n9", from), edge.ErrInvalid)
	require.NoError(t, move("0", from, to))
	want := slices.Clone(v.Partitions[0].Replicas)
	want[0] = to
	c.arranged("n2", "orders", func(p edge.PartitionView) bool { return slices.Equal(p.Replicas, want) && p.Leader == to })
	require.NoError(t, move("0", from, to), "asked again")
	c.eventually(func() bool {
		names, err := c.disks[string(from)].List("/data/trash")
		return err == nil && len(names) > 0
	}, "its files stay")
	c.kill(string(from))
	require.Len(t, c.drain(string(to), "orders", 20), 20)
}

// TestReplicationOfATopicIsChanged: up, with a higher minimum; and down again.
func TestReplicationOfATopicIsChanged(t *testing.T) {
	c := newCluster(t, 3)
	require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "1", "partitions": "2"}))
	set := func(factor, minimum string) error {
		return c.administer("n3", "topic.replication", "orders", map[string]string{"replication_factor": factor, "min_in_sync": minimum})
	}
	require.ErrorIs(t, set("", ""), edge.ErrInvalid)
	require.ErrorIs(t, set("", "2"), edge.ErrInvalid, "more than there are replicas")
	require.ErrorIs(t, set("4", ""), edge.ErrInvalid, "more than there are brokers")
	require.ErrorIs(t, c.administer("n3", "topic.replication", "nothing", map[string]string{"min_in_sync": "1"}), edge.ErrTopicNotFound)
	require.NoError(t, set("3", "3"))
	c.arranged("n1", "orders", func(p edge.PartitionView) bool { return p.MinInSync == 3 })
	for i := range 20 {
		require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
	}
	require.ErrorIs(t, set("2", ""), edge.ErrInvalid, "below the minimum")
	require.NoError(t, set("1", "1"))
	c.arranged("n1", "orders", func(p edge.PartitionView) bool { return len(p.Replicas) == 1 })
	require.Len(t, c.drain("n2", "orders", 20), 20)
}

// TestBalanceUsesABrokerThatCameLater: what lay on three brokers lies on four, and
// leaders too.
func TestBalanceUsesABrokerThatCameLater(t *testing.T) {
	c := newCluster(t, 4)
	require.NoError(t, c.nodes["n1"].Decommission(context.Background(), "n4", true))
	require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "3", "partitions": "8"}))
	require.NoError(t, c.nodes["n1"].Decommission(context.Background(), "n4", false))
	c.eventually(func() bool {
		return !slices.ContainsFunc(c.nodes["n2"].Cluster().Brokers, func(v edge.BrokerView) bool { return v.Leaving })
	}, "it stays")
	require.NoError(t, c.administer("n2", "cluster.balance", "", nil))
	c.arranged("n3", "orders", func(edge.PartitionView) bool { return true })
	v, _ := c.view("n3", "orders")
	replicas, leads := map[ident.Node]int{}, map[ident.Node]int{}
	for _, p := range v.Partitions {
		leads[p.Replicas[0]]++
		for _, n := range p.Replicas {
			replicas[n]++
		}
	}
	require.Equal(t, map[ident.Node]int{"n1": 6, "n2": 6, "n3": 6, "n4": 6}, replicas)
	require.Equal(t, map[ident.Node]int{"n1": 2, "n2": 2, "n3": 2, "n4": 2}, leads)
}
