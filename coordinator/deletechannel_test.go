package coordinator_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/stretchr/testify/require"
)

// hookedMeta calls txn before each transaction, and get before each read.
type hookedMeta struct {
	metadata.Store
	txn func(ctx context.Context, puts []metadata.Put)
	get func(ctx context.Context, key string) error
}

func (h hookedMeta) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if h.txn != nil {
		h.txn(ctx, puts)
	}
	return h.Store.Txn(ctx, cmp, puts)
}

func (h hookedMeta) Get(ctx context.Context, key string) (metadata.Entry, error) {
	if h.get != nil {
		if err := h.get(ctx, key); err != nil {
			return metadata.Entry{}, err
		}
	}
	return h.Store.Get(ctx, key)
}

// TestDeleteOfAChannelIsRepeated: nsqadmin posts a delete to every broker that
// lists the topic. A channel that has been recreated is deleted.
func TestDeleteOfAChannelIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		for range 2 {
			c.do("n1", "channel.create", "orders", "billing", nil)
			for _, n := range []string{"n1", "n2", "n3", "n1"} {
				c.do(n, "channel.delete", "orders", "billing", nil)
			}
			c.eventually(func() bool { return len(c.nodes["n3"].Channels("orders")) == 0 }, "gone")
		}
		err := do(context.Background(), c.nodes["n2"], operation{Verb: "channel.delete", Topic: "orders", Channel: "other"})
		require.ErrorIs(t, err, outcome.ErrChannelNotFound)
	})
}

// TestLastTwoChannelsDeletedAtOnce: a topic loses its last two channels at the
// same moment; the next channel is its first again and begins with the backlog.
func TestLastTwoChannelsDeletedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		var arrived atomic.Int32
		both := make(chan struct{})
		hook := func(ctx context.Context, puts []metadata.Put) {
			if !armed.Load() {
				return
			}
			for _, p := range puts {
				if p.Delete && strings.Contains(p.Key, "/channels/") {
					if arrived.Add(1) == 2 {
						close(both)
					}
					select {
					case <-both:
					case <-ctx.Done():
					}
					return
				}
			}
		}
		c := newClusterOf(t, cluster{size: 3, wrap: func(_ string, s metadata.Store) metadata.Store { return hookedMeta{Store: s, txn: hook} }})
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "x", nil)
		c.do("n1", "channel.create", "orders", "y", nil)
		for _, n := range all {
			c.eventually(func() bool { return len(c.nodes[n].Channels("orders")) == 2 }, "known")
		}
		armed.Store(true)
		var done sync.WaitGroup
		done.Go(func() { c.do("n1", "channel.delete", "orders", "x", nil) })
		done.Go(func() { c.do("n2", "channel.delete", "orders", "y", nil) })
		done.Wait()
		for _, n := range all {
			c.eventually(func() bool { return len(c.nodes[n].Channels("orders")) == 0 }, "gone")
		}
		for _, m := range []string{"m0", "m1", "m2"} {
			require.NoError(t, c.put("n1", "orders", m)) // nobody consumes: the topic keeps them
		}
		c.do("n3", "channel.create", "orders", "next", nil)
		s, ok := c.stats("orders", "next")
		require.True(t, ok)
		require.EqualValues(t, 3, s.Depth, "the only channel of the topic does not get what the topic kept")
	})
}

// TestUnpausedChannelStaysUnpaused: a broker has not received an unpause, because its
// watch is behind, and takes a subscription. The subscription must not pause the channel.
func TestUnpausedChannelStaysUnpaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		c.do("n1", "channel.pause", "orders", "billing", nil)
		require.NoError(t, c.put("n1", "orders", "m0"))
		leader := c.leader("orders")
		behind, other := "", ""
		for _, n := range all {
			switch {
			case n == leader:
			case behind == "":
				behind = n
			default:
				other = n
			}
		}
		c.kill(behind) // it has not received what was placed
		c.restart(behind)
		c.whole("orders")
		c.sessions[behind].Cut() // its etcd member is behind
		c.do(other, "channel.unpause", "orders", "billing", nil)
		s, _ := c.stats("orders", "billing")
		require.False(t, s.Paused)
		require.Equal(t, leader, c.leader("orders"))
		consumer := c.subscribe(behind, "orders", "billing", 10)
		defer consumer.sub.Close(true)
		c.sessions[behind].Heal()
		s, _ = c.stats("orders", "billing")
		require.False(t, s.Paused, "a subscription paused the channel")
		require.Equal(t, "m0", string(consumer.next().Message.Body))
	})
}
