package replicas

import (
	"path"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/enginetest"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLocal is a broker n1 that hosts one replica.
func newLocal(t *testing.T) (*Local, *enginetest.Replica) {
	return newLocalOn(t, vfstest.NewMemory())
}

func newLocalOn(t *testing.T, fs vfs.FS) (*Local, *enginetest.Replica) {
	r, m, keys := enginetest.NewOn(t, fs, nsqd.Options{}), metadatatest.NewMemory(), metadata.Keys{Cluster: "test"}
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return New(Options{
		Self: "n1", Incarnation: func() ident.Incarnation { return 1 }, Engine: r.Engine, Store: r.Store, Catalog: catalog.New(keys, r.Log), Meta: m, Keys: keys,
		Group: concurrency.NewGroup(), Log: r.Log,
	}), r
}

// TestStoresPreparedInVainGo: not those of a partition that has a key after all, or that was opened since.
func TestStoresPreparedInVainGo(t *testing.T) {
	h, r := newLocal(t)
	req := calls.PrepareRequest{Name: "new", Topic: 9, Partitions: []uint16{0, 1, 2}}
	first, err := h.Prepare(req)
	require.NoError(t, err)
	again, err := h.Prepare(req)
	require.NoError(t, err)
	require.Equal(t, first, again, "asked twice, as after a lost answer")

	vain, keyed, opened := ident.Partition{Topic: 9}, ident.Partition{Topic: 9, Number: 1}, ident.Partition{Topic: 9, Number: 2}
	ok, _, err := h.o.Meta.Txn(t.Context(), nil, []metadata.Put{{Key: h.o.Keys.Partition(keyed), Value: metadata.Encode(metadata.PartitionState{V: metadata.Version})}})
	require.True(t, ok && err == nil)
	st, _ := h.o.Store.Partition(opened)
	p := r.Engine.NewPartition(engine.Config{ID: opened, Topic: "new", Store: st})
	r.Engine.Add(p, enginetest.NewMachine())
	require.NoError(t, h.Release(t.Context(), req))
	require.NoError(t, h.trashUnused(opened), "its key came between two looks")
	there := func(p ident.Partition) bool { _, ok := h.o.Store.Partition(p); return ok }
	require.False(t, there(vain))
	require.True(t, there(keyed))
	require.True(t, there(opened))
	require.NoError(t, h.Release(t.Context(), req), "asked twice")
}

// TestReplicaMovedBackStays: the watch has delivered the move, and not yet the move back.
func TestReplicaMovedBackStays(t *testing.T) {
	h, _ := newLocal(t)
	key := h.o.Keys.Partition(enginetest.ID)
	state := func(of ident.Node) []byte {
		return metadata.Encode(metadata.PartitionState{V: metadata.Version, Replicas: []ident.Node{of}})
	}
	h.o.Catalog.Apply(metadata.Change{Puts: []metadata.Entry{{Key: key, Value: state("n2"), Mod: 1}}})
	for _, now := range []ident.Node{"n1", "n2"} {
		_, _, err := h.o.Meta.Txn(t.Context(), nil, []metadata.Put{{Key: key, Value: state(now)}})
		require.NoError(t, err)
		h.moveAway(t.Context(), enginetest.ID)
		_, stored := h.o.Store.Partition(enginetest.ID)
		require.Equal(t, now == "n1", stored)
	}
}

// TestReplicaWaitsForRoom: the disk is full when a replica is placed here. The broker continues, and
// makes the replica once there is room.
func TestReplicaWaitsForRoom(t *testing.T) {
	var full atomic.Bool
	h, r := newLocalOn(t, vfstest.Wrap(vfstest.NewMemory(), func(op vfstest.Op) error {
		if full.Load() && op.Call == vfstest.CallWrite && path.Base(op.Name) == "store.json.tmp" {
			return syscall.ENOSPC
		}
		return nil
	}))
	h.o.Peers = noPeers{}
	topic := metadata.TopicState{V: metadata.Version, ID: 9, Partitions: 2}
	puts := []metadata.Entry{{Key: h.o.Keys.Topic("new"), Value: metadata.Encode(topic), Mod: 1}}
	ids := []ident.Partition{{Topic: 9}, {Topic: 9, Number: 1}}
	for _, id := range ids {
		puts = append(puts, metadata.Entry{Key: h.o.Keys.Partition(id), Value: metadata.Encode(metadata.PartitionState{V: metadata.Version, Replicas: []ident.Node{"n1"}}), Mod: 1})
	}
	h.o.Catalog.Apply(metadata.Change{Puts: puts})
	full.Store(true)
	h.PartitionsChanged(ids)
	h.Retry()
	for _, id := range ids {
		_, open := r.Engine.Partition(id)
		require.False(t, open)
	}
	require.NoError(t, r.Store.Err(), "nothing is lost, so nothing stops")
	full.Store(false)
	h.Retry()
	for _, id := range ids {
		_, open := r.Engine.Partition(id)
		require.True(t, open)
	}
	require.Empty(t, h.waiting)
}

type noPeers struct{}

func (noPeers) LiveEvent(metadata.PartitionState, ident.Node) replica.Event { return replica.Tick{} }
func (noPeers) Introduce(ident.Partition, []ident.Node)                     {}
