package coordinator_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// deposing deletes the controller's key right before the transaction that adds a replica,
// once in the cluster, and reports whether the transaction was carried out.
type deposing struct {
	metadata.Store
	once    *sync.Once
	carried chan<- bool
}

func (d deposing) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (ok bool, rev int64, err error) {
	if !addsReplica(puts) {
		return d.Store.Txn(ctx, cmp, puts)
	}
	deposed := false
	d.once.Do(func() {
		deposed = true
		_, _, err = d.Store.Txn(ctx, nil, []metadata.Put{{Key: metadata.Keys{Cluster: "test"}.Controller(), Delete: true}})
	})
	if err != nil {
		return false, 0, err
	}
	ok, rev, err = d.Store.Txn(ctx, cmp, puts)
	if deposed {
		d.carried <- ok
	}
	return ok, rev, err
}

// addsReplica reports whether a transaction gives a partition a fourth replica: the controller's first step of a move.
func addsReplica(puts []metadata.Put) bool {
	if len(puts) != 1 || !strings.Contains(puts[0].Key, "/partitions/") {
		return false
	}
	s, err := metadata.DecodePartition(metadata.Entry{Key: puts[0].Key, Value: puts[0].Value})
	return err == nil && len(s.Replicas) == 4
}

// TestDeposedControllerChangesNothing: another broker may have become the controller since
// the plan was made. The partition's key has not changed, so only the controller's key tells
// that the plan is void. The next controller makes the move.
func TestDeposedControllerChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var once sync.Once
		carried := make(chan bool, 1)
		c := newClusterOf(t, cluster{size: 4, wrap: func(_ string, s metadata.Store) metadata.Store {
			return deposing{s, &once, carried}
		}})
		from, to := c.movable("orders")
		require.NoError(t, c.move("n1", "orders", "0", from, to))
		require.False(t, <-carried, "a controller that was replaced moves replicas")
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return slices.Contains(p.Replicas, ident.Node(to)) })
	})
}
