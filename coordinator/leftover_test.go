package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// failingRead starts a cluster in which the first read of such a key fails, and the first after the count was set to 0.
func failingRead(t *testing.T, size int, of string) (*cluster, *atomic.Int32) {
	failed := &atomic.Int32{}
	get := func(_ context.Context, key string) error {
		if strings.Contains(key, of) && failed.Add(1) == 1 {
			return metadata.ErrUnavailable
		}
		return nil
	}
	return newClusterOf(t, cluster{size: size, wrap: func(_ string, s metadata.Store) metadata.Store { return hookedMeta{Store: s, get: get} }}), failed
}

// TestMovedReplicaGoesAlthoughAReadFailed: the metadata does not answer the one
// read that says that the moved replica may go.
func TestMovedReplicaGoesAlthoughAReadFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, failed := failingRead(t, 4, "/partitions/")
		from, to := c.movable("orders")
		failed.Store(0)
		require.NoError(t, c.move("n2", "orders", "0", from, to))
		c.arranged("n2", "orders", func(p api.PartitionView) bool { return !slices.Contains(p.Replicas, ident.Node(from)) })
		c.eventually(func() bool { return failed.Load() >= 1 }, "nothing was read")
		c.eventually(func() bool { return len(c.trash(from)) > 0 }, "its files stay")
	})
}

// TestDeletedTopicGoesAlthoughAReadFailed: the same for a topic that was deleted while the broker was down.
func TestDeletedTopicGoesAlthoughAReadFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, failed := failingRead(t, 3, "deleted-topics/")
		require.NoError(t, c.put("n1", "orders", "old"))
		c.whole("orders")
		away := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[c.leader("orders")]
		on := c.leader("orders")
		c.kill(away)
		c.do(on, "topic.delete", "orders", "", nil)
		require.NoError(t, c.put(on, "orders", "new")) // made again: its tombstone is only in the audit
		c.restart(away)
		c.eventually(func() bool { return failed.Load() >= 1 }, "nothing was read")
		c.eventually(func() bool { return len(c.trash(away)) > 0 }, "its files stay")
	})
}

// TestChannelKeysOfADeletedTopic: the broker that deletes a topic dies before it has
// removed the channels' keys, and the next put creates the topic again.
func TestChannelKeysOfADeletedTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		get := func(context.Context, string) error { return nil }
		c := newClusterOf(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store {
			return failingList{hookedMeta{Store: s, get: get}, &armed}
		}})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		old, _ := c.nodes["n1"].Topic("orders")
		armed.Store(true)
		require.Error(t, do(context.Background(), c.nodes["n1"], operation{Verb: "topic.delete", Topic: "orders"}))
		armed.Store(false)
		c.eventually(func() bool { _, ok := c.nodes["n2"].Topic("orders"); return !ok }, "gone")
		require.NoError(t, c.put("n2", "orders", "new"))
		require.NoError(t, do(context.Background(), c.nodes["n1"], operation{Verb: "topic.delete", Topic: "orders"}), "repeated")
		left := func() []metadata.Entry {
			e, _, err := c.meta.List(context.Background(), metadata.Keys{Cluster: "test"}.Channels(old.ID))
			require.NoError(t, err)
			return e
		}
		c.eventually(func() bool { return len(left()) == 0 }, "keys of channels of a topic that is gone")
	})
}

type failingList struct {
	hookedMeta
	armed *atomic.Bool
}

func (f failingList) List(ctx context.Context, prefix string) ([]metadata.Entry, int64, error) {
	if f.armed.Load() && strings.Contains(prefix, "/channels/") {
		return nil, 0, metadata.ErrUnavailable
	}
	return f.hookedMeta.List(ctx, prefix)
}

// TestRetentionOfOneTopicDoesNotWaitForOthers: partitions without their minimum want to carry a message forward; a
// topic that has all it needs takes puts again as soon as its consumers have made room.
func TestRetentionOfOneTopicDoesNotWaitForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const partitions = 16
		c := newClusterOf(t, cluster{size: 2, segmentBytes: smallSegment})
		c.do("n1", "topic.create", "bad", "", map[string]string{"partitions": fmt.Sprint(partitions)})
		c.do("n1", "channel.create", "bad", "billing", nil)
		good := ""
		for i := range 4 { // one of them is led by n1
			name := fmt.Sprintf("good%d", i)
			c.do("n1", "topic.create", name, "", map[string]string{"replication_factor": "1", "max_bytes": fmt.Sprint(4 * smallSegment)})
			c.do("n1", "channel.create", name, "billing", nil)
			if c.leader(name) == "n1" {
				good = name
			}
		}
		require.NotEmpty(t, good)
		bad, _ := c.nodes["n1"].Topic("bad")
		pad := []byte(strings.Repeat("x", 8<<10))
		var held []ident.Partition
		for n := range partitions {
			if p := bad.Partition(n); c.nodes["n1"].Leads(p) {
				held = append(held, p)
			}
		}
		require.GreaterOrEqual(t, len(held), 4)
		later := map[uint16]bool{}
		for i := 0; len(later) < partitions; i++ {
			key := []byte(fmt.Sprint(i))
			id := c.putMessage("n1", "bad", key, queue.Message{Body: []byte("later"), DeliverAt: time.Now().Add(time.Hour).UnixNano()})
			later[partitionOf(id)] = true
		}
		for i := range partitions * 40 {
			c.putMessage("n1", "bad", []byte(fmt.Sprint(i)), queue.Message{Body: pad})
		}
		for c.put("n1", good, string(pad)) == nil {
		}
		c.kill("n2")
		s := c.subscribe("n1", "bad", "billing", 10_000)
		done := make(chan struct{})
		finished := make(chan struct{})
		go func() { // finishes all that n1 leads of the bad topic
			defer close(finished)
			for {
				for _, d := range s.sub.Pull(1000, nil) {
					_ = s.sub.Finish(d.ID)
				}
				select {
				case <-s.sub.Wake():
				case <-done:
					return
				}
			}
		}()
		defer func() { close(done); <-finished; s.sub.Close(true) }()
		c.eventually(func() bool {
			n := 0
			for _, p := range held {
				q, _ := c.nodes["n1"].Queue(p)
				ch, ok := q.Channel("billing")
				if ok && ch != nil && q.Floor() >= 25 && q.DeferredCount() > 0 {
					n++
				}
			}
			return n == len(held)
		}, "consumed")
		g := c.subscribe("n1", good, "billing", 10_000)
		defer g.sub.Close(true)
		for range 6 {
			for c.depth(good, "billing") > 0 { // consumers make room
				g.finish(g.next())
			}
			began := time.Now()
			c.eventually(func() bool { return c.put("n1", good, string(pad)) == nil }, "no room for puts although all is consumed")
			t.Logf("room after %s", time.Since(began))
			require.Less(t, time.Since(began), 2500*time.Millisecond, "retention looks twice a second")
			for c.put("n1", good, string(pad)) == nil {
			}
		}
	})
}

func (c *cluster) depth(topic, channel string) int64 {
	s, _ := c.stats(topic, channel)
	return s.Depth + int64(s.InFlightCount)
}

func partitionOf(id api.MessageID) uint16 {
	place, _ := parseID(id)
	return place
}

func parseID(id api.MessageID) (uint16, bool) {
	p, ok := api.ParseMessageID(id)
	return p.Partition, ok
}
