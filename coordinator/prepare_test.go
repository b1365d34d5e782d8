package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestStoresPreparedInVainGo: not those of a partition that has a key after all, or that
// was opened since.
func TestStoresPreparedInVainGo(t *testing.T) {
	a := newAlone(t)
	b, m := a.b, meta.NewMemory()
	defer m.Close()
	b.store, b.meta, b.keys, b.mu.hosts = a.store, m, b.catalog.keys, map[ident.Partition]*hosted{}
	req := prepareRequest{Name: "new", Topic: 9, Partitions: []uint16{0, 1, 2}}
	first, err := b.servePrepare(req)
	require.NoError(t, err)
	again, err := b.servePrepare(req)
	require.NoError(t, err)
	require.Equal(t, first, again, "asked twice, as after a lost answer")

	vain, keyed, opened := ident.Partition{Topic: 9}, ident.Partition{Topic: 9, Number: 1}, ident.Partition{Topic: 9, Number: 2}
	ok, _, err := m.Txn(t.Context(), nil, []meta.Put{{Key: b.keys.Partition(keyed), Value: meta.Encode(meta.PartitionState{V: meta.Version})}})
	require.True(t, ok && err == nil)
	b.mu.hosts[opened] = &hosted{}
	require.NoError(t, b.serveRelease(t.Context(), req))
	require.NoError(t, b.trashUnused(opened), "its key came between two looks")
	there := func(p ident.Partition) bool { _, ok := b.store.Partition(p); return ok }
	require.False(t, there(vain))
	require.True(t, there(keyed))
	require.True(t, there(opened))
	require.NoError(t, b.serveRelease(t.Context(), req), "asked twice")
}
