package plan_test

import (
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// A replica at a dead broker is not being filled: its leader, and with it the move of
// that very replica to another broker, does not wait for it.
func TestPlanFillsBesideReplicasAtDeadBrokers(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Live: live("a", "b")}
	for range 3 {
		lacking := partition("a", "a", "z")
		lacking.State.ISR = lacking.State.ISR[:1]
		s.Partitions = append(s.Partitions, lacking)
	}
	s.Partitions = append(s.Partitions, partition("a", "a"))
	require.Len(t, planOf(s), 1)

	s.Live = live("a", "b", "z")
	require.Empty(t, planOf(s), "it came back, and is being filled")
}

// TestPlanKeepsWhoLeavesUntilSomebodyComes: a leaving broker keeps its replica until a
// successor exists.
func TestPlanKeepsWhoLeavesUntilSomebodyComes(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("b", "a", "b")},
		Live: live("b"), Leaving: []ident.Node{"a"}}
	require.Empty(t, planOf(s))
}

// TestPlanTakesTheOrderOfATarget: if all replicas are in place, a target sets their order,
// and with it the preferred leader.
func TestPlanTakesTheOrderOfATarget(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a", "b")}, Live: live("a", "b")}
	s.Partitions[0].State.Target = []ident.Node{"b", "a"}
	order := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"b", "a"}, order.State.Replicas)
	require.Empty(t, order.State.Target)
	require.Len(t, order.State.ISR, 2)

	s.Partitions[0].State.Target = []ident.Node{"a", "b"}
	done := planOf(s)[0].(plan.Rewrite)
	require.Empty(t, done.State.Target, "it is reached, and ends")
}

// One more replica comes to another zone if there is one, also if its broker is fuller.
func TestPlanFillsInAnotherZone(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a")}, Live: []plan.Broker{
		{Node: "a", Zone: "x"}, {Node: "b", Zone: "x"}, {Node: "c", Zone: "y", Replicas: 9}}}
	require.Equal(t, []ident.Node{"a", "c"}, planOf(s)[0].(plan.Rewrite).State.Replicas)

	s.Live = s.Live[:2]
	require.Equal(t, []ident.Node{"a", "b"}, planOf(s)[0].(plan.Rewrite).State.Replicas, "there is none")
}

// TestPlanTakesWhoHasOneIfNobodyElseIsThere: a broker of the target leaves. A broker that
// has a replica already keeps it if there is no other one.
func TestPlanTakesWhoHasOneIfNobodyElseIsThere(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("b", "a", "b")},
		Live: live("a", "b"), Leaving: []ident.Node{"d"}}
	s.Partitions[0].State.Target = []ident.Node{"d", "b"}
	keep := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"b", "a"}, keep.State.Replicas)
	require.Empty(t, keep.State.Target)
}

// A minimum that is lowered with the factor comes first: replicas go after it.
func TestPlanFreesNothingBelowTheMinimum(t *testing.T) {
	s := plan.Snapshot{Topics: ofTopic(1, 2), Partitions: []plan.Partition{partition("a", "a", "b")}, Live: live("a", "b")}
	s.Partitions[0].State.MinInSync = 2
	require.Empty(t, planOf(s))
}

// The leadership of a broker that leaves goes to one that lives.
func TestPlanHandsOverToTheLiving(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a", "b", "c")},
		Live: live("c"), Leaving: []ident.Node{"a"}}
	require.Equal(t, []plan.Action{plan.TransferLeadership{Partition: ident.Partition{Topic: 7}, From: "a", To: "c"}}, planOf(s))

	s.Live = nil
	require.Empty(t, planOf(s), "nobody lives who could lead")
}

// A leader that is dead hands nothing over; its successor is elected.
func TestPlanAsksNoDeadLeader(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("b", "a", "b")}, Live: live("a")}
	require.Empty(t, planOf(s))
}
