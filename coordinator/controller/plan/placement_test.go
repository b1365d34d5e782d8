package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

func brokers(zones ...string) []plan.Broker {
	var out []plan.Broker
	for i, z := range zones {
		out = append(out, plan.Broker{Node: ident.Node(fmt.Sprintf("n%d", i+1)), Zone: z})
	}
	return out
}

func TestPlaceRefusesTooFewBrokers(t *testing.T) {
	_, err := plan.Place(brokers("", ""), plan.Placement{Partitions: 1, Replicas: 3})
	require.ErrorIs(t, err, plan.ErrTooFewBrokers)
}

func TestPlaceDealsReplicasAndLeadersEvenly(t *testing.T) {
	got, err := plan.Place(brokers("", "", "", ""), plan.Placement{Partitions: 8, Replicas: 3})
	require.NoError(t, err)
	replicas, leads := map[ident.Node]int{}, map[ident.Node]int{}
	for _, nodes := range got {
		require.Len(t, nodes, 3)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(nodes))), 3, "a broker holds one replica of a partition")
		leads[nodes[0]]++
		for _, n := range nodes {
			replicas[n]++
		}
	}
	for _, n := range []ident.Node{"n1", "n2", "n3", "n4"} {
		require.Equal(t, 6, replicas[n], n)
		require.Equal(t, 2, leads[n], n)
	}
}

func TestPlaceSpreadsOverZonesFirst(t *testing.T) {
	load := brokers("a", "a", "a", "b", "c")
	load[3].Replicas, load[4].Replicas = 50, 50 // full, and still the only ones in their zones
	got, err := plan.Place(load, plan.Placement{Partitions: 3, Replicas: 3})
	require.NoError(t, err)
	for _, nodes := range got {
		require.Contains(t, nodes, ident.Node("n4"))
		require.Contains(t, nodes, ident.Node("n5"))
	}
}

func TestPlaceDoesNotDependOnTheOrderOfTheList(t *testing.T) {
	load := brokers("a", "b", "c", "a", "b")
	want, err := plan.Place(load, plan.Placement{Partitions: 5, Replicas: 3})
	require.NoError(t, err)
	slices.Reverse(load)
	got, err := plan.Place(load, plan.Placement{Partitions: 5, Replicas: 3})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestBalanceSpreadsOverANewBroker(t *testing.T) {
	var before [][]ident.Node
	for range 8 {
		before = append(before, []ident.Node{"n1", "n2", "n3"})
	}
	after := plan.Balance(brokers("", "", "", ""), before)
	replicas, leads, moved := map[ident.Node]int{}, map[ident.Node]int{}, 0
	for i, nodes := range after {
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(nodes))), 3, "a broker holds one replica of a partition")
		leads[nodes[0]]++
		for _, n := range nodes {
			replicas[n]++
			if !slices.Contains(before[i], n) {
				moved++
			}
		}
	}
	require.Equal(t, map[ident.Node]int{"n1": 6, "n2": 6, "n3": 6, "n4": 6}, replicas)
	require.Equal(t, map[ident.Node]int{"n1": 2, "n2": 2, "n3": 2, "n4": 2}, leads)
	require.Equal(t, 6, moved, "no more than needed")
	require.Equal(t, []ident.Node{"n1", "n2", "n3"}, before[0], "the input is left alone")
	require.Equal(t, after, plan.Balance(brokers("", "", "", ""), after), "what is even stays")
}

func TestBalanceKeepsZonesApartAndLeavesStrangersAlone(t *testing.T) {
	before := [][]ident.Node{{"n1", "n3"}, {"n1", "n3"}, {"n1", "gone"}, {"n1", "n3"}}
	after := plan.Balance(brokers("a", "a", "b"), before)
	require.Contains(t, after[2], ident.Node("gone"))
	for i, nodes := range after {
		require.False(t, slices.Contains(nodes, "n1") && slices.Contains(nodes, "n2"), "partition %d in one zone", i)
	}
	require.Contains(t, slices.Concat(after...), ident.Node("n2"))
}

// TestBalanceOfAHundredBrokers: most pairs of so many have nothing for each other,
// and that is not looked for again at each step (which took seconds a hundred
// partitions).
func TestBalanceOfAHundredBrokers(t *testing.T) {
	placed, err := plan.Place(hundred()[1:], plan.Placement{Partitions: 2_000, Replicas: 3})
	require.NoError(t, err)
	load := map[ident.Node]int{}
	for _, nodes := range plan.Balance(hundred(), placed) {
		for _, n := range nodes {
			load[n]++
		}
	}
	first := hundred()[0] // the new one
	for _, other := range hundred() {
		if other.Zone == first.Zone {
			require.InDelta(t, load[first.Node], load[other.Node], 1, other.Node)
		}
	}
}
