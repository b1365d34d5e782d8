package liveness

import (
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// TestPartitionedLeader: a leader counts as partitioned by the list that its present run has
// published, and only for other brokers.
func TestPartitionedLeader(t *testing.T) {
	p := New(Options{Self: "n2"})
	p.mu.states["n3"] = peerState{up: true}
	s := metadata.PartitionState{Replicas: []ident.Node{"n1", "n2", "n3"}, Leader: "n1", LeaderIncarnation: 5, MinInSync: 2}
	for _, n := range s.Replicas {
		s.ISR = append(s.ISR, ident.Member{Node: n, Store: 1})
	}
	r := catalog.Registration{NodeState: metadata.NodeState{Name: "n1", Unreachable: []ident.Node{"n2", "n3"}}, Incarnation: 5}
	require.True(t, p.partitioned(s, r))
	r.Incarnation = 6
	require.False(t, p.partitioned(s, r), "another run said so")
	s.Leader, r.Name, r.Incarnation, r.Unreachable = "n2", "n2", 5, []ident.Node{"n1", "n3"}
	p.mu.states["n1"] = peerState{up: true}
	require.False(t, p.partitioned(s, r), "it reaches them again")
}
