package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/stretchr/testify/require"
)

// partitions asks for a number of partitions.
func (c *cluster) partitions(on, topic string, n int, args ...string) error {
	q := map[string]string{"partitions": fmt.Sprint(n)}
	for _, a := range args {
		q[a] = "true"
	}
	return c.administer(on, "topic.partitions", topic, q)
}

// TestTopicGrowsUnderLoad: a consumer that was there before receives everything that is published before, during and
// after, by brokers that receive the change at their own time. A channel without consumers has everything, too.
func TestTopicGrowsUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"partitions": "2"}))
		c.do("n1", "channel.create", "orders", "drain", nil)
		c.do("n1", "channel.create", "orders", "idle", nil)
		c.do("n1", "channel.pause", "orders", "idle", nil)
		stop, stored := c.publishing("orders", "n1", "n2", "n3")
		c.eventually(func() bool { return stored() > 50 }, "nothing is stored")
		require.ErrorIs(t, c.partitions("n2", "orders", 1), outcome.ErrInvalid, "fewer")
		require.ErrorIs(t, c.partitions("n2", "orders", 0), outcome.ErrInvalid)
		require.ErrorIs(t, c.partitions("n2", "nothing", 9), outcome.ErrTopicNotFound)
		require.NoError(t, c.partitions("n2", "orders", 8))
		require.NoError(t, c.partitions("n3", "orders", 8), "asked again")
		v, _ := c.view("n2", "orders")
		require.Len(t, v.Partitions, 8)
		before := stored()
		c.eventually(func() bool { return stored() > before+300 }, "puts stop")
		require.Empty(t, stop())
		require.Len(t, c.drain("n3", "orders", stored()), stored())
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return p.CommittedSequence > 1 })
		depth := int64(0)
		c.eventually(func() bool {
			depth = 0
			for _, b := range c.nodes {
				for _, s := range b.Broker.Inspector.Topics("orders", "idle", false) {
					for _, ch := range s.Channels {
						require.True(t, ch.Paused, "a channel is paused in its new partitions, too")
						depth += ch.Depth
					}
				}
			}
			return depth == int64(stored())
		}, "the idle channel lacks messages")

		c.kill("n1")
		c.restart("n1")
		require.NoError(t, c.put("n1", "orders", "later"))
		require.NoError(t, c.administer("n1", "topic.delete", "orders", nil))
		c.eventually(func() bool {
			left, _, err := c.meta.List(t.Context(), metadata.Keys{Cluster: "test"}.Root()+"partitions/")
			return err == nil && len(left) == 0
		}, "keys of partitions stay")
	})
}

// TestGrowthIsResumed: the broker that was asked loses the metadata after the new partitions
// have their keys. The topic works as before; another broker continues, with the same number only.
// A channel that is created during the growth exists in the new partitions, a deleted one does not.
func TestGrowthIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		begun := make(chan struct{})
		var once sync.Once
		c := newClusterOf(t, cluster{size: 3, wrap: func(name string, s metadata.Store) metadata.Store {
			if name != "n1" {
				return s
			}
			return growthCut{Store: s, cut: &cut, begun: func() { once.Do(func() { close(begun) }) }}
		}})
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"partitions": "2"}))
		for _, name := range []string{"stays", "goes"} {
			c.do("n1", "channel.create", "orders", name, nil)
		}
		cut.Store(true)
		require.Error(t, c.partitions("n1", "orders", 6))
		<-begun
		cut.Store(false)
		v, _ := c.view("n2", "orders")
		require.Len(t, v.Partitions, 2, "no put goes to the new ones")
		require.NoError(t, c.put("n3", "orders", "m"))
		c.do("n2", "channel.create", "orders", "comes", nil)
		c.do("n3", "channel.delete", "orders", "goes", nil)
		require.ErrorIs(t, c.partitions("n2", "orders", 9), outcome.ErrConflict)
		require.NoError(t, c.partitions("n2", "orders", 6))
		require.NoError(t, c.partitions("n2", "orders", 9), "now")
		v, _ = c.view("n2", "orders")
		require.Len(t, v.Partitions, 9)
		c.eventually(func() bool {
			led := 0
			for _, b := range c.nodes {
				topic, ok := b.Topic("orders")
				for n := range topic.Partitions {
					if q, hosted := b.Queue(topic.Partition(n)); ok && hosted && b.Leads(topic.Partition(n)) {
						require.ElementsMatch(t, []string{"stays", "comes"}, q.Channels(), "partition %d", n)
						led++
					}
				}
			}
			return led == 9
		}, "not all are led")
	})
}

// growthCut is the metadata of a broker that loses it between the steps of a growth.
type growthCut struct {
	metadata.Store
	cut   *atomic.Bool
	begun func()
}

func (g growthCut) List(ctx context.Context, prefix string) ([]metadata.Entry, int64, error) {
	if g.cut.Load() && strings.Contains(prefix, "/channels/") {
		g.begun()
		return nil, 0, errors.Join(metadata.ErrUnavailable, errors.New("cut"))
	}
	return g.Store.List(ctx, prefix)
}

// TestDeletedWhileItGrows: the new partitions go, too.
func TestDeletedWhileItGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		c := newClusterOf(t, cluster{size: 2, wrap: func(name string, s metadata.Store) metadata.Store {
			return growthCut{Store: s, cut: &cut, begun: func() {}}
		}})
		require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
		cut.Store(true)
		require.Error(t, c.partitions("n1", "orders", 4))
		cut.Store(false)
		require.NoError(t, c.administer("n2", "topic.delete", "orders", nil))
		left, _, err := c.meta.List(t.Context(), metadata.Keys{Cluster: "test"}.Root()+"partitions/")
		require.NoError(t, err)
		require.Empty(t, left)
		c.eventually(func() bool { return len(c.trash("n1")) == 4 && len(c.trash("n2")) == 4 }, "folders stay")
	})
}

// TestOrderedTopicGrowsOnlyIfTheOrderMayGo: keys may go to other partitions.
func TestOrderedTopicGrowsOnlyIfTheOrderMayGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"ordered": "true"}))
		require.ErrorContains(t, c.partitions("n1", "orders", 2), "reorder=true")
		require.NoError(t, c.partitions("n1", "orders", 2, "reorder"))
	})
}

// TestContentTopicGrowsOnlyIfRepeatsMayBeStored: a message that is published again after the growth may go to
// another partition than before, which does not know it.
func TestContentTopicGrowsOnlyIfRepeatsMayBeStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"dedupe": "content", "dedupe_window": "5m"}))
		err := c.partitions("n1", "orders", 2)
		require.ErrorIs(t, err, outcome.ErrInvalid)
		require.ErrorContains(t, err, "5m0s")
		require.ErrorContains(t, err, "reorder=true")
		v, _ := c.view("n1", "orders")
		require.Len(t, v.Partitions, 1)
		require.NoError(t, c.partitions("n1", "orders", 2, "reorder"))
	})
}
