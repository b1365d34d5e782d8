package upkeep

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/catalog"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/tasks"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// bounded takes transactions of the size that etcd takes.
type bounded struct {
	t *testing.T
	meta.Store
}

func (b bounded) Txn(ctx context.Context, cmp []meta.Compare, puts []meta.Put) (bool, int64, error) {
	require.LessOrEqual(b.t, len(puts), meta.MaxTxn)
	return b.Store.Txn(ctx, cmp, puts)
}

// TestOldTombstonesGo: those that were there when the last look began at which the same
// brokers were there, in transactions that are not too large, while the fence holds.
func TestOldTombstonesGo(t *testing.T) {
	store := bounded{t, meta.NewMemory()}
	defer store.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	keys := meta.Keys{Cluster: "test"}
	c, group := catalog.New(keys, log), tasks.NewGroup()
	collection := NewTombstones(TombstoneOptions{Store: store, Keys: keys, Catalog: c, Group: group, Log: log})
	run := func(incarnation int64) {
		c.Apply(meta.Change{Puts: []meta.Entry{
			{Key: keys.Node("n1"), Value: meta.Encode(meta.NodeState{V: meta.Version, Name: "n1"})},
			{Key: keys.Live("n1"), Value: meta.Encode(meta.NodeState{V: meta.Version, Name: "n1"}), Create: incarnation, Mod: incarnation},
		}})
	}
	made := 0
	bury := func(n int) {
		for range n {
			_, _, err := store.Txn(t.Context(), nil, []meta.Put{{Key: fmt.Sprint(keys.Tombstones(), made), Value: []byte("{}")}})
			require.NoError(t, err)
			made++
		}
	}
	fence := meta.Compare{Key: "/nobody"}
	look := func(want int) {
		t.Helper()
		collection.Collect(fence)
		group.Wait()
		left, _, err := store.List(t.Context(), keys.Tombstones())
		require.NoError(t, err)
		require.Len(t, left, want)
	}
	few, many := 5, meta.MaxTxn+5
	run(1)
	bury(few)
	look(few)
	run(2)
	look(few) // a broker was away
	fence = meta.Compare{Key: "/nobody", Create: 7, Mod: -1}
	look(few) // another one controls
	fence = meta.Compare{Key: "/nobody"}
	bury(1)
	look(1) // it came later
	bury(many)
	look(many)
	look(0)
}
