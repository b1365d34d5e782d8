package coordinator_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// TestUncleanRecovery: one replica is away, then both that are in sync lose their
// disks. The partition has no leader until an operator recovers it from the third replica.
// The messages of that replica are there, later ones are lost, and the record says so.
func TestUncleanRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newCluster(t, 3), context.Background()
		require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
		c.whole("orders")
		for i := range 10 {
			require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
		}
		c.whole("orders")
		leader := c.leader("orders")
		_, err := c.nodes["n1"].Recover(ctx, "orders", 0, "n2")
		require.ErrorIs(t, err, outcome.ErrInvalid, "it has a leader")

		survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.kill(survivor)
		for i := range 5 {
			require.NoError(t, c.put(leader, "orders", fmt.Sprintf("lost%d", i)))
		}
		for name := range c.disks {
			if name != survivor {
				c.kill(name)
				c.wipe(name)
			}
		}
		for name := range c.disks {
			c.restart(name)
		}
		var remains api.Remains
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
			require.ErrorIs(t, err, outcome.ErrInvalid)
		}
		_, err = c.nodes[leader].Recover(ctx, "orders", 0, ident.Node(survivor))
		require.NoError(t, err)
		c.whole("orders")
		c.arranged(leader, "orders", func(api.PartitionView) bool { return true })
		require.NoError(t, c.put(leader, "orders", "after"))
		got := c.drain(leader, "orders", 11)
		require.Contains(t, got, "after")
		require.NotContains(t, got, "lost0")
		records, _, err := c.meta.List(ctx, metadata.Keys{Cluster: "test"}.Audit(""))
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Contains(t, string(records[0].Value), `"end_sequence":10`)
	})
}

// TestRecoveryWithOutdatedMetadata: the metadata is several changes of leader behind. No
// broker leads in an epoch that is over, until an operator recovers the partition. With one
// change the elected member gets the very epoch that the replicas have seen end.
func TestRecoveryWithOutdatedMetadata(t *testing.T) {
	t.Parallel()
	for _, changes := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d changes", changes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { recoverOutdated(t, changes) })
		})
	}
}

func recoverOutdated(t *testing.T, changes int) {
	c, ctx := newCluster(t, 3), context.Background()
	require.NoError(t, c.put("n1", "orders", "m0"))
	c.whole("orders")
	topic, _ := c.nodes["n1"].Topic("orders")
	key := metadata.Keys{Cluster: "test"}.Partition(topic.Partition(0))
	backup, err := c.meta.Get(ctx, key)
	require.NoError(t, err)
	for i := range changes {
		leader := c.leader("orders")
		c.kill(leader)
		c.restart(leader)
		require.NoError(t, c.put(leader, "orders", fmt.Sprintf("m%d", i+1)))
		c.whole("orders")
	}
	for name := range c.disks {
		c.kill(name)
	}
	ok, _, err := c.meta.Txn(ctx, nil, []metadata.Put{{Key: key, Value: backup.Value}})
	require.NoError(t, err)
	require.True(t, ok)
	for name := range c.disks {
		c.restart(name)
	}
	var remains api.Remains
	c.eventually(func() bool {
		remains, err = c.nodes["n1"].Remains(ctx, "orders", 0)
		return err == nil && len(remains.Replicas) == 3 && remains.Outdated
	}, "not all answer, or the metadata counts as the current one: %+v", &remains)
	require.Empty(t, remains.Refused)
	require.Empty(t, remains.Leader)
	_, err = c.nodes["n1"].Recover(ctx, "orders", 0, "n2")
	require.NoError(t, err)
	c.whole("orders")
	require.NoError(t, c.put("n3", "orders", "after"))
	c.arranged("n1", "orders", func(p api.PartitionView) bool { return p.MinInSync == 2 && p.Epoch > remains.Replicas[0].Epoch })
	got := c.drain("n1", "orders", changes+2)
	require.Contains(t, got, "after")
}

// TestRecoveryOfAReplicaThatCatchesUp: a replica has received the channels' state, and is copying the log, when both
// in-sync replicas lose their disks. The partition continues from this replica. The next put lies at a sequence that
// the channel had already passed. It is delivered.
func TestRecoveryOfAReplicaThatCatchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newClusterOf(t, cluster{size: 3, catchUpRate: 1 << 20}), context.Background()
		require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
		c.do("n1", "channel.create", "orders", "drain", nil)
		c.whole("orders")
		leader := c.leader("orders")
		survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.kill(survivor)
		const puts = 64
		large := strings.Repeat("x", 64<<10)
		for i := range puts {
			require.NoError(t, c.put(leader, "orders", fmt.Sprint(i, large)))
		}
		require.Len(t, c.drain(leader, "orders", puts), puts)
		c.counts("orders", "drain", 0, 0, 0)
		c.restart(survivor)
		c.eventually(func() bool {
			d, err := c.nodes[survivor].Digest(api.DigestRequest{Topic: "orders", From: math.MaxInt64}) // its ends
			return err == nil && d.EndSequence > puts/4
		}, "nothing is caught up")
		for name := range c.disks {
			c.net.isolate(survivor, name)
		}
		has := c.digest(survivor, "orders").EndSequence
		require.Less(t, has, ident.Sequence(puts), "it has caught up")
		for name := range c.disks {
			if name != survivor {
				c.kill(name)
				c.wipe(name)
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
		var s api.ChannelStats
		c.eventually(func() bool { s, _ = c.stats("orders", "drain"); return s.Depth >= 3 }, "what was put is not to be delivered")
		got := c.drain(leader, "orders", int(s.Depth))
		for i := range 3 {
			require.Contains(t, got, fmt.Sprint("after", i))
		}
	})
}

// TestChannelsAfterARecovery: the only replica came back empty, and the partition is recovered from it. A broker that
// had seen the topic's channel before has it created again for its consumers.
func TestChannelsAfterARecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newCluster(t, 3), context.Background()
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "1", "min_in_sync": "1"}))
		leader := c.leader("orders")
		other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[leader]
		c.do(other, "channel.create", "orders", "billing", nil)
		c.kill(leader)
		c.wipe(leader)
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
	})
}

// TestOldDiskAfterARecovery: the operator has recovered a partition without messages that were acknowledged, and the
// disk that has them comes back. It is not cut: it stays out of the in-sync set with an alarm, its messages can be
// read, and it is copied again only when the operator gives it up by name.
func TestOldDiskAfterARecovery(t *testing.T) {
	t.Parallel()
	for name, acknowledged := range map[string]int{"many": 5, "the last one": 1} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replaced since %v", name, replaced), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { oldDiskAfterARecovery(t, acknowledged, replaced) })
			})
		}
	}
}

func oldDiskAfterARecovery(t *testing.T, acknowledged int, replaced bool) {
	c, ctx := newCluster(t, 3), context.Background()
	alarms := &hook{}
	c.log.AddHook(alarms)
	require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
	c.whole("orders")
	for i := range 10 {
		require.NoError(t, c.put("n1", "orders", fmt.Sprintf("m%d", i)))
	}
	c.whole("orders")
	lost := c.leader("orders")
	survivor := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[lost]
	third := map[string]string{"n1": "n3", "n2": "n1", "n3": "n2"}[lost]
	c.kill(survivor)
	for i := range acknowledged {
		require.NoError(t, c.put(lost, "orders", fmt.Sprintf("lost%d", i)))
	}
	c.kill(lost)
	c.kill(third)
	old := c.disks[lost]
	c.wipe(lost)
	c.wipe(third)
	c.restart(survivor)
	c.restart(third)
	if replaced {
		c.restart(lost)
	}
	c.eventually(func() bool {
		_, err := c.nodes[survivor].Recover(ctx, "orders", 0, ident.Node(survivor))
		return err == nil
	}, "not recovered")
	c.eventually(func() bool { return c.put(survivor, "orders", "after") == nil }, "nobody leads")
	if replaced {
		c.whole("orders")
		c.kill(lost)
		c.meta.Expire(c.lease(lost))
	}
	c.disks[lost] = old
	c.restart(lost)
	c.eventually(func() bool { return alarms.has("replication alarm", lost) }, "no alarm")
	require.Equal(t, 10+acknowledged, int(c.digest(lost, "orders").EndSequence), "it was cut")
	c.eventually(func() bool {
		v, ok := c.view(survivor, "orders")
		return ok && !slices.Contains(v.Partitions[0].ISR, ident.Node(lost))
	}, "the old disk is not out of the in-sync set")

	for i := range acknowledged { // they are saved
		peeked, err := c.nodes[third].Peek(ctx, api.PeekRequest{Topic: "orders", From: fmt.Sprint(10 + i), Limit: 1, Node: ident.Node(lost), Uncommitted: true})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("lost%d", i), peeked.Messages[0].Body)
	}
	require.ErrorIs(t, c.nodes[third].Discard(ctx, "orders", 0, ident.Node(survivor)), outcome.ErrInvalid, "it is in sync")
	require.ErrorIs(t, c.nodes[third].Discard(ctx, "orders", 0, "n9"), outcome.ErrInvalid)
	require.NoError(t, c.nodes[third].Discard(ctx, "orders", 0, ident.Node(lost)))
	c.whole("orders")
	require.NoError(t, c.put(lost, "orders", "at last"))
	require.NotContains(t, c.drain(lost, "orders", 12), "lost0")
	records, _, err := c.meta.List(ctx, metadata.Keys{Cluster: "test"}.Audit(""))
	require.NoError(t, err)
	require.Len(t, records, 2)
}

// lease is that of a broker's registration, 0 if it has none.
func (c *cluster) lease(name string) int64 {
	e, _ := c.meta.Get(context.Background(), metadata.Keys{Cluster: "test"}.Live(ident.Node(name)))
	return e.Lease
}

// hook keeps log lines.
type hook struct {
	mu    sync.Mutex
	lines []string
}

func (*hook) Levels() []logrus.Level { return []logrus.Level{logrus.ErrorLevel} }

func (h *hook) Fire(e *logrus.Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprint(e.Message, " on ", e.Data["on"], ": ", e.Data[logrus.ErrorKey]))
	return nil
}

// has reports whether a broker has logged an error.
func (h *hook) has(message, on string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.lines, func(l string) bool { return strings.HasPrefix(l, message+" on "+on) })
}
