package moves

import (
	"context"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// rig is a Moves of three brokers that run, and a topic with a partition on two of them. The catalog follows the store.
type rig struct {
	*Moves
	store *metadatatest.Memory
}

func newRig(t *testing.T) *rig {
	m := metadatatest.NewMemory()
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	keys := metadata.Keys{Cluster: "test"}
	r := &rig{store: m, Moves: New(Options{
		Store: m, Keys: keys, Catalog: catalog.New(keys, logrus.New()),
		Snapshot: func() plan.Snapshot { return plan.Snapshot{} },
		Low:      func(ident.Node) bool { return false },
	})}
	puts := []metadata.Put{
		{Key: keys.Topic("orders"), Value: metadata.Encode(metadata.TopicState{V: metadata.Version, ID: 7, Partitions: 1})},
		{Key: keys.Partition(ident.Partition{Topic: 7}), Value: metadata.Encode(metadata.PartitionState{V: metadata.Version, Replicas: []ident.Node{"n1", "n2"}})},
	}
	for _, n := range []ident.Node{"n1", "n2", "n3"} {
		puts = append(puts, metadata.Put{Key: keys.Node(n), Value: metadata.Encode(metadata.NodeState{V: metadata.Version, Name: n})},
			metadata.Put{Key: keys.Live(n), Value: metadata.Encode(metadata.NodeState{V: metadata.Version, Name: n})})
	}
	_, _, err := m.Txn(t.Context(), nil, puts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for ch := range m.Watch(ctx, keys.Root()) {
			r.o.Catalog.Apply(ch)
			r.o.Catalog.Notify()
		}
	}()
	t.Cleanup(func() { cancel(); <-followed })
	require.NoError(t, r.o.Catalog.Await(t.Context(), func() bool { _, ok := r.o.Catalog.Partition(ident.Partition{Topic: 7}); return ok }))
	return r
}

func (r *rig) target(t *testing.T) []ident.Node {
	e, err := r.o.Store.Get(t.Context(), r.o.Keys.Partition(ident.Partition{Topic: 7}))
	require.NoError(t, err)
	s, err := metadata.DecodePartition(e)
	require.NoError(t, err)
	return s.Target
}

// TestAMoveIsATarget: the replicas stay as they are, and a repeat changes nothing.
func TestAMoveIsATarget(t *testing.T) {
	r := newRig(t)
	move := api.MoveReplica{Topic: "orders", From: "n2", To: "n3"}
	for range 2 {
		require.NoError(t, r.Do(t.Context(), move))
		require.Equal(t, []ident.Node{"n1", "n3"}, r.target(t))
	}
	require.ErrorContains(t, r.Do(t.Context(), api.MoveReplica{Topic: "orders", From: "n1", To: "n3"}), `"n3" has a replica of it already`)
	require.ErrorContains(t, r.Do(t.Context(), api.MoveReplica{Topic: "orders", From: "n9", To: "n2"}), `broker not found: "n9"`)
	require.ErrorContains(t, r.Do(t.Context(), api.MoveReplica{Topic: "orders", Partition: 1, From: "n1", To: "n2"}), "partition must be 0 to 0")
	require.ErrorIs(t, r.Do(t.Context(), api.MoveReplica{Topic: "absent", From: "n1", To: "n2"}), outcome.ErrTopicNotFound)
}

// TestABrokerThatLeavesGetsNoReplica: nor one that is drained.
func TestABrokerThatLeavesGetsNoReplica(t *testing.T) {
	r := newRig(t)
	move := api.MoveReplica{Topic: "orders", From: "n2", To: "n3"}
	require.NoError(t, r.Do(t.Context(), api.Drain{Node: "n3"}))
	require.NoError(t, r.o.Catalog.Await(t.Context(), func() bool { return r.o.Catalog.Drain("n3") != "" }))
	require.ErrorContains(t, r.Do(t.Context(), move), "is drained")
	require.NoError(t, r.Do(t.Context(), api.Drain{Node: "n3", Cancel: true}))
	require.NoError(t, r.Do(t.Context(), api.Decommission{Node: "n3"}))
	require.NoError(t, r.o.Catalog.Await(t.Context(), func() bool { return r.o.Catalog.Leaving("n3") }))
	require.ErrorContains(t, r.Do(t.Context(), move), "is being decommissioned")
	require.Empty(t, r.target(t))
	require.ErrorContains(t, r.Do(t.Context(), api.Decommission{Node: "n9"}), `broker not found: "n9"`)
}

// TestTheLastBrokerIsNotDrained: somebody must lead.
func TestTheLastBrokerIsNotDrained(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.Do(t.Context(), api.Drain{Node: "n1"}))
	require.NoError(t, r.Do(t.Context(), api.Drain{Node: "n2", Replicas: true}))
	require.ErrorContains(t, r.Do(t.Context(), api.Drain{Node: "n3"}), "none could take the leaderships")
	_, err := r.Plan(t.Context(), api.Drain{Node: "n3"})
	require.ErrorContains(t, err, "none could take the leaderships")
}
