package plan_test

import (
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// TestPlanTakesLeadershipsFromADrainedBroker: to another in-sync replica that lives, and not
// back while the drain lasts, although the replica is preferred.
func TestPlanTakesLeadershipsFromADrainedBroker(t *testing.T) {
	s := plan.Snapshot{Topics: ofTopic(3, 2), Partitions: []plan.Partition{partition("a", "a", "b", "c")},
		Live: live("b", "c"), Drained: []ident.Node{"a"}}
	s.Partitions[0].State.MinInSync = 2
	to := func(from, to ident.Node) []plan.Action {
		return []plan.Action{plan.TransferLeadership{Partition: ident.Partition{Topic: 7}, From: from, To: to}}
	}
	require.Equal(t, to("a", "b"), planOf(s))
	s.Partitions[0].State.Leader = "b"
	require.Empty(t, planOf(s), "the preferred replica is drained")
	s.Partitions[0].State.Leader = "c"
	require.Equal(t, to("c", "b"), planOf(s), "the first that is not drained is preferred")
	s.Partitions[0].State.Leader = "a"
	s.Live = live("c")
	require.Equal(t, to("a", "c"), planOf(s), "b is dead")
	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[:2]
	require.Empty(t, planOf(s), "no other in-sync replica lives")
	s.Drained, s.Live = nil, live("a", "b", "c")
	s.Partitions[0].State.Leader = "b"
	require.Equal(t, to("b", "a"), planOf(s), "the drain is over")
}

// TestPlanGivesADrainedBrokerNoReplica: also one that is the only free broker.
func TestPlanGivesADrainedBrokerNoReplica(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a")},
		Live: live("a"), Drained: []ident.Node{"b"}}
	require.Empty(t, planOf(s))
	s.Drained, s.Live = nil, live("a", "b")
	require.Len(t, planOf(s), 1)
}

// TestPlanFreesADrainedBroker: of replicas, leadership first; and it is not forgotten.
func TestPlanFreesADrainedBroker(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a", "b")},
		Live: live("b", "c"), Drained: []ident.Node{"a"}, Leaving: []ident.Node{"a"}, Staying: []ident.Node{"a"}}
	require.Equal(t, []plan.Action{plan.TransferLeadership{Partition: ident.Partition{Topic: 7}, From: "a", To: "b"}}, planOf(s))
	s.Partitions[0].State.Leader = "b"
	require.Equal(t, []ident.Node{"a", "b", "c"}, planOf(s)[0].(plan.Rewrite).State.Replicas)
	end := plan.Foresee(s)[0].State
	require.Equal(t, []ident.Node{"b", "c"}, end.Replicas)
	require.EqualValues(t, "b", end.Leader)
	require.Len(t, s.Partitions[0].State.ISR, 2, "the snapshot is left as it was")
	s.Partitions[0] = partition("b", "b", "c")
	s.Drained, s.Gone = nil, []ident.Node{"a"}
	require.Empty(t, planOf(s), "it is away for its maintenance")
	s.Staying = nil
	require.Equal(t, []plan.Action{plan.Forget{Node: "a"}}, planOf(s), "it is decommissioned")
}
