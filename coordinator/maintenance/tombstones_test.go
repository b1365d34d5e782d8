package maintenance

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// bounded takes transactions of the size that etcd takes.
type bounded struct {
	t *testing.T
	metadata.Store
}

func (b bounded) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	require.LessOrEqual(b.t, len(puts), metadata.MaxTxn)
	return b.Store.Txn(ctx, cmp, puts)
}

// TestOldTombstonesGo: those that were there when the last pass began in which the same
// brokers were there, in transactions that are not too large, while the fence holds.
func TestOldTombstonesGo(t *testing.T) {
	store := bounded{t, metadatatest.NewMemory()}
	defer store.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	keys := metadata.Keys{Cluster: "test"}
	c, group := catalog.New(keys, log), concurrency.NewGroup()
	collection := (&tombstones{Broker: &Broker{Meta: store, Keys: keys, Catalog: c, Group: group, Log: log}})
	run := func(incarnation int64) {
		c.Apply(metadata.Change{Puts: []metadata.Entry{
			{Key: keys.Node("n1"), Value: metadata.Encode(metadata.NodeState{V: metadata.Version, Name: "n1"})},
			{Key: keys.Live("n1"), Value: metadata.Encode(metadata.NodeState{V: metadata.Version, Name: "n1"}), Create: incarnation, Mod: incarnation},
		}})
	}
	made := 0
	bury := func(n int) {
		for range n {
			_, _, err := store.Txn(t.Context(), nil, []metadata.Put{{Key: fmt.Sprint(keys.Tombstones(), made), Value: []byte("{}")}})
			require.NoError(t, err)
			made++
		}
	}
	fence := metadata.Compare{Key: "/nobody"}
	look := func(want int) {
		t.Helper()
		collection.collect(fence)
		group.Wait()
		left, _, err := store.List(t.Context(), keys.Tombstones())
		require.NoError(t, err)
		require.Len(t, left, want)
	}
	few, many := 5, metadata.MaxTxn+5
	run(1)
	bury(few)
	look(few)
	run(2)
	look(few) // a broker was away
	fence = metadata.Compare{Key: "/nobody", Create: 7, Mod: -1}
	look(few) // another one controls
	fence = metadata.Compare{Key: "/nobody"}
	bury(1)
	look(1) // it came later
	bury(many)
	look(many)
	look(0)
}
