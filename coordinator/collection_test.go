package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// TestTombstonesOfDeletedTopicsGo: without collection each deleted topic would leave a tombstone
// permanently. While a broker is away the tombstones stay: they allow it to trash its replicas.
func TestTombstonesOfDeletedTopicsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32 // of controllers
		get := func(_ context.Context, key string) error {
			if strings.HasSuffix(key, "/controller") {
				looks.Add(1)
			}
			return nil
		}
		c := newClusterOf(t, cluster{size: 3, tombstoneGrace: time.Millisecond, wrap: func(_ string, s metadata.Store) metadata.Store {
			return hookedMeta{Store: s, get: get}
		}})
		marks := func() int {
			e, _, err := c.meta.List(context.Background(), metadata.Keys{Cluster: "test"}.Audit("deleted-topics/"))
			require.NoError(t, err)
			return len(e)
		}
		remove := func(topic string) {
			c.do("n1", "topic.create", topic, "", nil)
			c.do("n1", "topic.delete", topic, "", nil)
		}
		remove("orders")
		c.eventually(func() bool { return marks() == 0 }, "it stays although all brokers are here")

		c.kill("n3")
		c.eventually(func() bool { return len(c.nodes["n1"].Nodes()) == 2 }, "it is away")
		remove("invoices")
		looks.Store(0)
		c.eventually(func() bool { return looks.Load() > 4 }, "nobody controls")
		require.Equal(t, 1, marks())
		c.restart("n3")
		c.eventually(func() bool { return marks() == 0 }, "it stays although all brokers are back")
	})
}

// slowTombstones answers the list of the tombstones only when the caller's context ends.
type slowTombstones struct{ metadata.Store }

func (s slowTombstones) List(ctx context.Context, prefix string) ([]metadata.Entry, int64, error) {
	if strings.HasSuffix(prefix, "deleted-topics/") {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	return s.Store.List(ctx, prefix)
}

// TestControllerDoesNotWaitForTombstones: a cluster of which a million topics were deleted before has as many.
func TestControllerDoesNotWaitForTombstones(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 4, tombstoneGrace: time.Millisecond, wrap: func(_ string, s metadata.Store) metadata.Store { return slowTombstones{s} }})
		from, to := c.movable("orders")
		require.NoError(t, c.move("n2", "orders", "0", from, to))
		c.arranged("n2", "orders", func(p api.PartitionView) bool { return string(p.Leader) == to })
	})
}
