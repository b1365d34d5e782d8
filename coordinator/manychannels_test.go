package coordinator_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/stretchr/testify/require"
)

// countingMeta counts the transactions that write a channel's key.
type countingMeta struct {
	metadata.Store
	count *atomic.Int64
}

func (m countingMeta) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if strings.Contains(puts[0].Key, "/channels/") {
		m.count.Add(1)
	}
	return m.Store.Txn(ctx, cmp, puts)
}

// TestManyChannelsAtOnce: consumers of many channels of a topic come at the same
// time. Each channel moves the topic's key; they do not make them against each other.
func TestManyChannelsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		c := newClusterOf(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store { return countingMeta{s, &count} }})
		c.do("n1", "topic.create", "orders", "", nil)
		const each = 40
		atOnce := func(verb string) int64 {
			before := count.Load()
			var done sync.WaitGroup
			for i, name := range all {
				for k := range each {
					done.Go(func() {
						op := operation{Verb: verb, Topic: "orders", Channel: fmt.Sprintf("c%d-%d", i, k)}
						if err := do(context.Background(), c.nodes[name], op); err != nil {
							t.Error(err)
						}
					})
				}
			}
			done.Wait()
			return count.Load() - before
		}
		require.Less(t, atOnce("channel.create"), int64(each))
		require.Len(t, c.nodes["n1"].Channels("orders"), 3*each)
		require.Less(t, atOnce("channel.delete"), int64(3*each*6))
		c.eventually(func() bool { return len(c.nodes["n1"].Channels("orders")) == 0 }, "deleted")
	})
}

// TestManyConsumersOfAChannelAtOnce: consumers of one channel come back at the same time to brokers that have not seen
// it yet. Each broker asks each leader once, for all of its partitions.
func TestManyConsumersOfAChannelAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "16"})
		for _, name := range all {
			c.arranged(name, "orders", func(api.PartitionView) bool { return true })
		}
		c.do("n1", "channel.create", "orders", "before", nil) // all leaders serve
		var asked atomic.Int64
		listen := func(frames []byte) { asked.Add(int64(bytes.Count(frames, []byte("queue.do")))) }
		c.net.heard.Store(&listen)
		var done sync.WaitGroup
		for _, name := range all {
			for range 20 {
				done.Go(func() { c.do(name, "channel.create", "orders", "billing", nil) })
			}
		}
		done.Wait()
		require.EqualValues(t, 2*len(all), asked.Load())
	})
}

// TestManyTopicsAtOnce: many producers put to topics that are not there yet, at one broker. No broker is asked for more
// than it serves at once: each is asked once for each topic, or a little more.
func TestManyTopicsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { manyTopicsAtOnce(newCluster(t, 3)) })
}

func manyTopicsAtOnce(c *cluster) {
	require.NoError(c.t, c.put("n1", "before", "m")) // all are connected
	var asked atomic.Int64
	listen := func(frames []byte) { asked.Add(int64(bytes.Count(frames, []byte("replica.prepare")))) }
	c.net.heard.Store(&listen)
	const topics = 400
	var done sync.WaitGroup
	for i := range topics {
		done.Go(func() {
			if err := c.put("n1", fmt.Sprint("t", i), "m"); err != nil {
				c.t.Error(err)
			}
		})
	}
	done.Wait()
	require.Less(c.t, asked.Load(), int64(2*topics+topics/4))
}
