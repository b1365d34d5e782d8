package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// large is a settled cluster of a hundred brokers whose topics have a hundred
// partitions with three replicas.
func large(b *testing.B, partitions int) plan.Snapshot {
	const perTopic = 100
	var s plan.Snapshot
	for i := range 100 {
		s.Live = append(s.Live, plan.Broker{Node: ident.Node(fmt.Sprintf("broker-%02d", i)), Zone: fmt.Sprint("zone-", i%3)})
	}
	placed, err := plan.Place(s.Live, plan.Placement{Partitions: partitions, Replicas: 3})
	require.NoError(b, err)
	for i, nodes := range placed {
		id := ident.Partition{Topic: ident.TopicID(i / perTopic), Number: uint16(i % perTopic)}
		if id.Number == 0 {
			s.Topics = append(s.Topics, plan.Topic{Name: fmt.Sprint("topic-", id.Topic), State: metadata.TopicState{
				ID: id.Topic, Partitions: perTopic, ReplicationFactor: 3, MinInSync: 2}})
		}
		p := partition(nodes[0], nodes...)
		p.ID, p.State.MinInSync = id, 2
		s.Partitions = append(s.Partitions, p)
	}
	return s
}

// BenchmarkScalePlan plans for a cluster in which nothing is to be done, and for
// one of whose brokers an operator takes one away.
func BenchmarkScalePlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		settled := large(b, n)
		leaving := settled
		leaving.Leaving = []ident.Node{leaving.Live[0].Node}
		leaving.Live = slices.Clone(leaving.Live)[1:]
		for name, s := range map[string]plan.Snapshot{"settled": settled, "leaving": leaving} {
			b.Run(fmt.Sprintf("%s/partitions=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				actions := 0
				for b.Loop() {
					actions = len(plan.Plan(s, plan.Options{}))
				}
				b.ReportMetric(float64(actions), "actions")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/partition")
			})
		}
	}
}
