package coordinator_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/stretchr/testify/require"
)

// TestUncleanRecovery: one replica is away, then both that are in sync lose their
// disks. Nobody leads, until an operator goes on with what the third one has: it
// is there, what came later is lost, and the record says so.
func TestUncleanRecovery(t *testing.T) {
	c, ctx := newCluster(t, 3), context.Background()
	require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
	c.whole("orders")
	for i := range 10 {
		require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
	}
	c.whole("orders")
	leader := c.leader("orders")
	_, err := c.nodes["n1"].Recover(ctx, "orders", 0, "n2")
	require.ErrorIs(t, err, edge.ErrInvalid, "it has a leader")

	survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
	c.kill(survivor)
	for i := range 5 {
		require.NoError(t, c.put(leader, "orders", fmt.Sprintf("lost%d", i)))
	}
	for name := range c.disks {
		if name != survivor {
			c.kill(name)
			c.disks[name] = vfs.NewMemory()
		}
	}
	for name := range c.disks {
		c.restart(name)
	}
	var remains coordinator.Remains
	c.eventually(func() bool {
		remains, err = c.nodes[leader].Remains(ctx, "orders", 0)
		return err == nil && remains.Refused == "" && len(remains.Replicas) == 3
	}, "not all answer")
	require.Empty(t, remains.Leader)
	for _, m := range remains.InSync {
		require.NotEqual(t, survivor, string(m.Node))
		require.Equal(t, "runs with another disk", m.State)
	}
	for _, h := range remains.Replicas {
		require.Equal(t, string(h.Node) == survivor, h.End == 10, "%+v", h)
	}
	for partition, from := range []string{"n9", survivor} {
		_, err = c.nodes[leader].Recover(ctx, "orders", partition, ident.Node(from))
		require.ErrorIs(t, err, edge.ErrInvalid)
	}
	_, err = c.nodes[leader].Recover(ctx, "orders", 0, ident.Node(survivor))
	require.NoError(t, err)
	c.whole("orders")
	c.arranged(leader, "orders", func(edge.PartitionView) bool { return true })
	require.NoError(t, c.put(leader, "orders", "after"))
	got := c.drain(leader, "orders", 11)
	require.Contains(t, got, "after")
	require.NotContains(t, got, "lost0")
	records, _, err := c.meta.List(ctx, meta.Keys{Cluster: "test"}.Audit(""))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Contains(t, string(records[0].Value), `"end_sequence":10`)
}

// TestRecoveryWithOutdatedMetadata: the metadata is what it was some changes of
// leader ago. Nobody leads in an epoch that is over; an operator goes on.
func TestRecoveryWithOutdatedMetadata(t *testing.T) {
	c, ctx := newCluster(t, 3), context.Background()
	require.NoError(t, c.put("n1", "orders", "m0"))
	c.whole("orders")
	topic, _ := c.nodes["n1"].Topic("orders")
	key := meta.Keys{Cluster: "test"}.Partition(topic.Partition(0))
	backup, err := c.meta.Get(ctx, key)
	require.NoError(t, err)
	for i := range 3 {
		leader := c.leader("orders")
		c.kill(leader)
		c.restart(leader)
		require.NoError(t, c.put(leader, "orders", fmt.Sprintf("m%d", i+1)))
		c.whole("orders")
	}
	for name := range c.disks {
		c.kill(name)
	}
	ok, _, err := c.meta.Txn(ctx, nil, []meta.Put{{Key: key, Value: backup.Value}})
	require.NoError(t, err)
	require.True(t, ok)
	for name := range c.disks {
		c.restart(name)
	}
	var remains coordinator.Remains
	c.eventually(func() bool {
		remains, err = c.nodes["n1"].Remains(ctx, "orders", 0)
		return err == nil && len(remains.Replicas) == 3
	}, "not all answer")
	require.True(t, remains.Outdated)
	require.Empty(t, remains.Refused)
	_, err = c.nodes["n1"].Recover(ctx, "orders", 0, "n2")
	require.NoError(t, err)
	c.whole("orders")
	require.NoError(t, c.put("n3", "orders", "after"))
	c.arranged("n1", "orders", func(p edge.PartitionView) bool { return p.MinInSync == 2 && p.Epoch > remains.Replicas[0].Epoch })
	got := c.drain("n1", "orders", 5)
	require.Contains(t, got, "after")
}

// TestRecoveryOfAReplicaThatCatchesUp: a replica has been told what the channels have
// done, and copies the log, when both that are in sync lose their disks. It is gone
// on with. What is put then stands where the channel had been: it is delivered.
func TestRecoveryOfAReplicaThatCatchesUp(t *testing.T) {
	c, ctx := newCluster(t, 3), context.Background()
	require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
	c.do("n1", "channel.create", "orders", "drain", nil)
	c.whole("orders")
	leader := c.leader("orders")
	survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
	c.kill(survivor)
	const puts = 64
	large := strings.Repeat("x", 1<<20)
	for i := range puts {
		require.NoError(t, c.put(leader, "orders", fmt.Sprint(i, large)))
	}
	require.Len(t, c.drain(leader, "orders", puts), puts)
	c.counts("orders", "drain", 0, 0, 0)
	c.restart(survivor)
	require.Eventually(t, func() bool {
		d, err := c.nodes[survivor].Digest(coordinator.DigestRequest{Topic: "orders", From: math.MaxInt64}) // its ends
		return err == nil && d.EndSequence > puts/4
	}, patience, time.Millisecond)
	for name := range c.disks {
		c.net.isolate(survivor, name)
	}
	has := c.digest(survivor, "orders").EndSequence
	require.Less(t, has, ident.Sequence(puts), "it has caught up")
	for name := range c.disks {
		if name != survivor {
			c.kill(name)
			c.disks[name] = vfs.NewMemory()
		}
	}
	c.net.heal()
	for name := range c.disks {
		if name != survivor {
			c.restart(name)
		}
	}
	c.eventually(func() bool {
		_, err := c.nodes[survivor].Recover(ctx, "orders", 0, ident.Node(survivor))
		return err == nil
	}, "not recovered")
	c.whole("orders")
	for i := range 3 {
		require.NoError(t, c.put(leader, "orders", fmt.Sprint("after", i)))
	}
	var s edge.ChannelStats
	c.eventually(func() bool { s, _ = c.stats("orders", "drain"); return s.Depth >= 3 }, "what was put is not to be delivered")
	got := c.drain(leader, "orders", int(s.Depth))
	for i := range 3 {
		require.Contains(t, got, fmt.Sprint("after", i))
	}
}

// TestChannelsAfterARecovery: the only replica came back empty, and is gone on with. A
// broker that had seen the topic's channel before has it made anew for whoever consumes
// it there.
func TestChannelsAfterARecovery(t *testing.T) {
	c, ctx := newCluster(t, 3), context.Background()
	require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "1", "min_in_sync": "1"}))
	leader := c.leader("orders")
	other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
	c.do(other, "channel.create", "orders", "billing", nil)
	c.kill(leader)
	c.disks[leader] = vfs.NewMemory()
	c.restart(leader)
	c.eventually(func() bool {
		remains, err := c.nodes[other].Remains(ctx, "orders", 0)
		return err == nil && remains.Refused == "" && len(remains.Replicas) == 1
	}, "it does not answer")
	_, err := c.nodes[other].Recover(ctx, "orders", 0, ident.Node(leader))
	require.NoError(t, err)
	c.leader("orders")
	require.NoError(t, c.put(other, "orders", "after"))
	c.eventually(func() bool { // as clients do, which connect again
		consumer := c.subscribe(other, "orders", "billing", 1)
		defer consumer.sub.Close(true)
		for {
			select {
			case <-consumer.sub.Wake():
				if len(consumer.sub.Pull(1, nil)) > 0 {
					return true
				}
			case <-consumer.sub.Closed():
				return false
			}
		}
	}, "nobody has the channel")
}
