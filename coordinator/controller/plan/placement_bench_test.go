package plan_test

import (
	"fmt"
	"testing"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/stretchr/testify/require"
)

// hundred brokers in three zones.
func hundred() (out []plan.Broker) {
	for i := range 100 {
		out = append(out, plan.Broker{Node: ident.Node(fmt.Sprintf("broker-%02d", i)), Zone: fmt.Sprint("zone-", i%3)})
	}
	return out
}

// BenchmarkScalePlace places partitions with three replicas on a hundred brokers.
func BenchmarkScalePlace(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := plan.Place(hundred(), plan.Placement{Partitions: n, Replicas: 3})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/partition")
		})
	}
}

// BenchmarkScaleBalance gives a new, empty broker its share of the replicas that
// ninety-nine others have.
func BenchmarkScaleBalance(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		placed, err := plan.Place(hundred()[1:], plan.Placement{Partitions: n, Replicas: 3})
		require.NoError(b, err)
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			for b.Loop() {
				plan.Balance(hundred(), placed)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/partition")
		})
	}
}
