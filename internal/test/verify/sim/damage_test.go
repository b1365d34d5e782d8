package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestDamageIsCounted: a plan that damages more than replication promises to
// survive would fail without a bug.
func TestDamageIsCounted(t *testing.T) {
	t.Run("the last whole copy", func(t *testing.T) {
		w, a, b := damageable(t)
		require.True(t, w.flip(fault{}, a))
		require.False(t, w.flip(fault{}, b))
		require.True(t, w.mayLose(a))
		require.False(t, w.mayLose(b))
	})
	t.Run("a copy that a move is about to drop", func(t *testing.T) {
		w, a, b := damageable(t)
		w.etcd.parts[0].Target = []ident.Node{b.name, w.nodes[2].name}
		require.True(t, w.flip(fault{}, a))
		require.True(t, w.mayLose(a))
		require.False(t, w.mayLose(b))
		w.etcd.parts[0].Target[0] = a.name
		require.False(t, w.mayLose(a))
	})
	t.Run("a copy that a proposal is about to drop", func(t *testing.T) {
		w, a, b := damageable(t)
		key := w.etcd.parts[0].Clone()
		key.ISR[1] = ident.Member{Node: w.nodes[2].name, Store: w.newStoreID()} // it lost that one
		require.True(t, w.mayLose(a))
		w.etcd.propose(0, key)
		require.False(t, w.mayLose(a))
		require.True(t, w.mayLose(b))
		w.etcd.put(0, w.etcd.parts[0])
		w.etcd.propose(0, key)
		require.True(t, w.mayLose(a), "another revision was there first")
	})
	t.Run("a damaged backup", func(t *testing.T) {
		w, a, b := damageable(t)
		require.True(t, w.flip(fault{}, a))
		a.disk.remember()
		a.disk.replace(a.disk.yesterday)
		w.etcd.parts[0].ISR[0].Store = a.disk.stores[0].id
		require.False(t, w.mayLose(b))
	})
}

// damageable is a world with one committed batch on two members.
func damageable(t *testing.T) (w *world, a, b *node) {
	draft := queue.NewDraft(1)
	_ = draft.AddMessage(queue.Message{Body: []byte("m")})
	d := draft.Draft(ident.RequestID{Producer: 1, N: 1})
	batches := []queue.Batch{d.Seal(ident.Position{}, 1, 0, 1)}
	w = newWorld(Config{Seed: 1})
	key := metadata.PartitionState{MinInSync: 2}
	for _, n := range w.nodes[:2] {
		s := &store{id: w.newStoreID()}
		require.NoError(t, s.durable.append(batches))
		n.disk.stores[0] = s
		key.Replicas = append(key.Replicas, n.name)
		key.ISR = append(key.ISR, ident.Member{Node: n.name, Store: s.id})
	}
	w.etcd.parts = []metadata.PartitionState{key}
	w.ledgers[0].batches = batches
	return w, w.nodes[0], w.nodes[1]
}
