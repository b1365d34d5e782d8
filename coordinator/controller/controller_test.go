package controller_test

import (
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/placement"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

var topic = controller.Topic{Name: "orders", State: meta.TopicState{ID: 7, Partitions: 1, ReplicationFactor: 2}}

func partition(leader ident.Node, replicas ...ident.Node) controller.Partition {
	s := meta.PartitionState{Replicas: replicas, Leader: leader, Revision: 5}
	for _, n := range replicas {
		s.ISR = append(s.ISR, ident.Member{Node: n, Store: 1})
	}
	return controller.Partition{ID: ident.Partition{Topic: 7}, State: s}
}

func live(nodes ...ident.Node) (out []placement.Broker) {
	for _, n := range nodes {
		out = append(out, placement.Broker{Node: n})
	}
	return out
}

func plan(s controller.Snapshot) []controller.Action {
	return controller.Plan(s, controller.Options{TombstoneMS: 1000, Moves: 2})
}

func TestPlanGivesLeadershipBackToTheLivePreferredMember(t *testing.T) {
	s := controller.Snapshot{Topics: []controller.Topic{topic}, Partitions: []controller.Partition{partition("b", "a", "b")}, Live: live("a", "b")}
	require.Equal(t, []controller.Action{controller.HandOver{Partition: ident.Partition{Topic: 7}, From: "b", To: "a"}}, plan(s))

	s.Live = live("b")
	require.Empty(t, plan(s), "the preferred one is dead")

	s.Live = live("a", "b")
	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[1:]
	require.Empty(t, plan(s), "the preferred one is not in sync")
}

func TestPlanAddsTheReplicasThatAreMissing(t *testing.T) {
	s := controller.Snapshot{Topics: []controller.Topic{topic}, Partitions: []controller.Partition{partition("a", "a")}, Live: live("a", "b", "c")}
	got := plan(s)
	require.Len(t, got, 1)
	add := got[0].(controller.AddReplica)
	require.Equal(t, []ident.Node{"a", "b"}, add.State.Replicas)
	require.EqualValues(t, 5, add.State.Revision)
	require.Len(t, add.State.ISR, 1, "it joins when it has caught up")

	s.Live = live("a")
	require.Empty(t, plan(s), "nobody is free")
}

func TestPlanDropsTombstonesInTheirTime(t *testing.T) {
	dead := controller.Topic{Name: "old", State: meta.TopicState{ID: 8, Deleted: true, DeletedAtMS: 1000, Revision: 3}}
	s := controller.Snapshot{Topics: []controller.Topic{dead}, NowMS: 1500}
	require.Empty(t, plan(s))
	s.NowMS = 2001
	require.Equal(t, []controller.Action{controller.DropTombstone{Name: "old", Revision: 3}}, plan(s))
}

func TestPlanMovesAFewAtATime(t *testing.T) {
	s := controller.Snapshot{Topics: []controller.Topic{topic}, Live: live("a", "b")}
	for range 5 {
		s.Partitions = append(s.Partitions, partition("b", "a", "b"))
	}
	require.Len(t, plan(s), 2)
}

func TestPlanFreesABrokerThatLeaves(t *testing.T) {
	s := controller.Snapshot{Topics: []controller.Topic{topic}, Partitions: []controller.Partition{partition("a", "a", "b")},
		Live: live("b", "c"), Leaving: []ident.Node{"a"}}
	add := plan(s)[0].(controller.AddReplica)
	require.Equal(t, []ident.Node{"a", "b", "c"}, add.State.Replicas)

	s.Partitions[0] = partition("a", "a", "b", "c")
	s.Partitions[0].State.ISR = s.Partitions[0].State.ISR[:2]
	require.Empty(t, plan(s), "the new replica is not in sync")

	s.Partitions[0] = partition("a", "a", "b", "c")
	require.Equal(t, []controller.Action{controller.HandOver{Partition: ident.Partition{Topic: 7}, From: "a", To: "b"}}, plan(s))

	s.Partitions[0] = partition("b", "a", "b", "c")
	s.Partitions[0].State.MinInSync = 2
	drop := plan(s)[0].(controller.DropReplica)
	require.Equal(t, []ident.Node{"b", "c"}, drop.State.Replicas)
	require.Len(t, drop.State.ISR, 2)

	s.Partitions[0].State.MinInSync = 3
	require.Empty(t, plan(s), "never below the minimum")
}
