package plan_test

import (
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

var topic = plan.Topic{Name: "orders", State: metadata.TopicState{ID: 7, Partitions: 1, ReplicationFactor: 2, MinInSync: 1}}

func partition(leader ident.Node, replicas ...ident.Node) plan.Partition {
	s := metadata.PartitionState{Replicas: replicas, Leader: leader, MinInSync: 1, Revision: 5}
	for _, n := range replicas {
		s.ISR = append(s.ISR, ident.Member{Node: n, Store: 1})
	}
	return plan.Partition{ID: ident.Partition{Topic: 7}, State: s}
}

func live(nodes ...ident.Node) (out []plan.Broker) {
	for _, n := range nodes {
		out = append(out, plan.Broker{Node: n})
	}
	return out
}

func planOf(s plan.Snapshot) []plan.Action {
	return plan.Plan(s, plan.Options{TombstoneMS: 1000, Copies: 2})
}

func TestPlanGivesLeadershipBackToTheLivePreferredMember(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("b", "a", "b")}, Live: live("a", "b")}
	require.Equal(t, []plan.Action{plan.TransferLeadership{Partition: ident.Partition{Topic: 7}, From: "b", To: "a"}}, planOf(s))

	s.Live = live("b")
	require.Empty(t, planOf(s), "the preferred one is dead")

	s.Live = live("a", "b")
	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[1:]
	require.Empty(t, planOf(s), "the preferred one is not in sync")
}

func TestPlanAddsTheReplicasThatAreMissing(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a")}, Live: live("a", "b", "c")}
	got := planOf(s)
	require.Len(t, got, 1)
	add := got[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"a", "b"}, add.State.Replicas)
	require.EqualValues(t, 5, add.State.Revision)
	require.Len(t, add.State.ISR, 1, "it joins when it has caught up")

	s.Live = live("a")
	require.Empty(t, planOf(s), "nobody is free")
}

func TestPlanDropsTombstonesInTheirTime(t *testing.T) {
	dead := plan.Topic{Name: "old", State: metadata.TopicState{ID: 8, Deleted: true, DeletedAtMS: 1000, Revision: 3}}
	s := plan.Snapshot{Topics: []plan.Topic{dead}, NowMS: 1500}
	require.Empty(t, planOf(s))
	s.NowMS = 2001
	drop := []plan.Action{plan.DropTombstone{Name: "old", ID: 8, Revision: 3}}
	require.Equal(t, drop, planOf(s))
	s.Topics[0].State.DeletedAtMS = 1 << 50
	require.Equal(t, drop, planOf(s), "whoever deleted it had a clock that was thousands of years ahead")
}

func TestPlanFillsAFewAtATime(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Live: live("a", "b", "c")}
	for range 5 {
		s.Partitions = append(s.Partitions, partition("a", "a"))
	}
	require.Len(t, planOf(s), 2, "the leader of all is busy with two")

	for i, leader := range []ident.Node{"a", "b", "c", "d", "e"} {
		s.Partitions[i] = partition(leader, leader)
	}
	got := map[ident.Node]int{}
	for _, a := range planOf(s) {
		got[a.(plan.Rewrite).State.Replicas[1]]++
	}
	require.Equal(t, map[ident.Node]int{"a": 1, "b": 1, "c": 1}, got, "who was given one counts as fuller, and each is busy with two")
}

// TestPlanFillsBesidePartitionsThatNobodyLeads: a partition without a leader is not being
// filled, perhaps never. The brokers of its replicas are free to fill others.
func TestPlanFillsBesidePartitionsThatNobodyLeads(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Live: live("a", "b")}
	for range 2 {
		lost := partition("z", "z", "a")
		lost.State.ISR = lost.State.ISR[:1]
		s.Partitions = append(s.Partitions, lost)
	}
	s.Partitions = append(s.Partitions, partition("b", "b"))
	require.Len(t, planOf(s), 1)

	s.Leaving = []ident.Node{"z"} // it runs still, and fills two
	require.Empty(t, planOf(s))
}

func TestPlanFreesABrokerThatLeaves(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a", "b")},
		Live: live("b", "c"), Leaving: []ident.Node{"a"}}
	add := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"a", "b", "c"}, add.State.Replicas)

	s.Partitions[0] = partition("a", "a", "b", "c")
	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[:2]
	require.Empty(t, planOf(s), "the new replica is not in sync")

	s.Partitions[0] = partition("a", "a", "b", "c")
	require.Equal(t, []plan.Action{plan.TransferLeadership{Partition: ident.Partition{Topic: 7}, From: "a", To: "b"}}, planOf(s))

	s.Partitions[0] = partition("b", "a", "b", "c")
	s.Partitions[0].State.MinInSync, s.Topics = 2, ofTopic(2, 2)
	drop := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"b", "c"}, drop.State.Replicas)
	require.Len(t, drop.State.ISR, 2)

	s.Partitions[0].State.MinInSync, s.Topics = 3, ofTopic(3, 3)
	require.Empty(t, planOf(s), "nobody goes before somebody comes")
}

// ofTopic is the topic with other numbers.
func ofTopic(factor, minimum int) []plan.Topic {
	t := topic
	t.State.ReplicationFactor, t.State.MinInSync = factor, minimum
	return []plan.Topic{t}
}

func TestPlanForgetsWhoHasLeft(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("b", "b", "c")},
		Live: live("b", "c"), Leaving: []ident.Node{"a"}}
	require.Empty(t, planOf(s), "it still runs")
	s.Gone = s.Leaving
	require.Equal(t, []plan.Action{plan.Forget{Node: "a"}}, planOf(s))
	s.Partitions[0] = partition("b", "b", "c", "a")
	require.NotContains(t, planOf(s), plan.Forget{Node: "a"}, "it has a replica yet")
}

// TestPlanMovesToATarget: add, wait, hand over, drop; then the order is that of
// the target.
func TestPlanMovesToATarget(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a", "b")}, Live: live("a", "b", "c", "d")}
	target := []ident.Node{"d", "b"}
	s.Partitions[0].State.Target = target
	add := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"a", "b", "d"}, add.State.Replicas)
	require.Equal(t, target, add.State.Target)
	require.Len(t, add.State.ISR, 2)

	s.Partitions[0].State = add.State
	require.Empty(t, planOf(s), "it is not in sync")

	s.Partitions[0] = partition("a", "a", "b", "d")
	s.Partitions[0].State.Target = target
	require.Equal(t, []plan.Action{plan.TransferLeadership{Partition: ident.Partition{Topic: 7}, From: "a", To: "d"}}, planOf(s))

	s.Partitions[0].State.Leader = "d"
	drop := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, target, drop.State.Replicas)
	require.Empty(t, drop.State.Target)
	require.Len(t, drop.State.ISR, 2)

	s.Partitions[0].State = drop.State
	require.Empty(t, planOf(s))
}

// TestPlanReplacesALeavingBrokerOfATarget: the chosen substitute is written down, so that
// the next plan does not choose again.
func TestPlanReplacesALeavingBrokerOfATarget(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("a", "a", "b")},
		Live: live("a", "b", "c"), Leaving: []ident.Node{"d"}}
	s.Partitions[0].State.Target = []ident.Node{"d", "b"}
	add := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"b", "c"}, add.State.Target)
	require.Equal(t, []ident.Node{"a", "b", "c"}, add.State.Replicas)
}

func TestPlanTakesReplicasAwayThatAreTooMany(t *testing.T) {
	s := plan.Snapshot{Topics: []plan.Topic{topic}, Partitions: []plan.Partition{partition("b", "a", "b", "c")}, Live: live("a", "b", "c")}
	drop := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"a", "b"}, drop.State.Replicas)

	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[1:]
	drop = planOf(s)[0].(plan.Rewrite)
	require.Equal(t, []ident.Node{"b", "c"}, drop.State.Replicas, "who is not in sync goes first")
}

func TestPlanChangesTheMinimumWhenSoManyAreInSync(t *testing.T) {
	s := plan.Snapshot{Topics: ofTopic(3, 3), Partitions: []plan.Partition{partition("a", "a", "b", "c")}, Live: live("a", "b", "c")}
	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[:2]
	require.Empty(t, planOf(s))
	s.Partitions[0] = partition("a", "a", "b", "c")
	require.Equal(t, 3, planOf(s)[0].(plan.Rewrite).State.MinInSync)

	s.Topics = ofTopic(1, 1)
	s.Partitions[0].State.MinInSync = 3
	lower := planOf(s)[0].(plan.Rewrite)
	require.Equal(t, 1, lower.State.MinInSync)
	require.Len(t, lower.State.Replicas, 3, "one thing after the other")
}
