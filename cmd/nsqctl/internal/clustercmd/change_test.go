package clustercmd

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestOpenSteps: each difference between a partition and its target is a step, and a broker has left when it has
// no replica, neither assigned nor in sync.
func TestOpenSteps(t *testing.T) {
	at := func(nodes ...ident.Node) []ident.Node { return nodes }
	for want, p := range map[string]api.PartitionView{
		"":                                    {Replicas: at("n1", "n2"), ISR: at("n1", "n2"), MinInSync: 1},
		"orders/0 waits for n2 to be in sync": {Replicas: at("n1", "n2"), ISR: at("n1"), MinInSync: 1},
		"orders/0 moves from n1,n2 to n1,n3":  {Replicas: at("n1", "n2"), ISR: at("n1", "n2"), Target: at("n1", "n3"), MinInSync: 1},
		"orders/0 has 1 replica, its target is 2":     {Replicas: at("n1"), ISR: at("n1"), MinInSync: 1},
		"orders/0 has min_in_sync 2, its target is 1": {Replicas: at("n1", "n2"), ISR: at("n1", "n2"), MinInSync: 2},
	} {
		v := api.ClusterView{
			Brokers: []api.BrokerView{{Name: "n1"}, {Name: "n2"}, {Name: "n3", Leaving: true}},
			Topics:  []api.TopicView{{Topic: "orders", ReplicationFactor: 2, MinInSync: 1, Partitions: []api.PartitionView{p}}},
		}
		var steps []string
		if want != "" {
			steps = []string{want}
		}
		require.Equal(t, steps, unsettled(func(string, int) bool { return true })(v))
		require.Equal(t, steps, Unsettled("orders")(v))
		require.Empty(t, Unsettled("audit")(v))
	}
	v := api.ClusterView{
		Brokers: []api.BrokerView{{Name: "n1"}, {Name: "n2", Leaving: true}},
		Topics:  []api.TopicView{{Topic: "orders", ReplicationFactor: 1, Partitions: []api.PartitionView{{Replicas: at("n1"), ISR: at("n1")}}}},
	}
	require.Empty(t, replicasOn("n2")(v))
	require.Equal(t, []string{"orders/0 is on n1"}, replicasOn("n1")(v))
	require.NoError(t, NotLeaving("n1")(v))
	require.ErrorContains(t, NotLeaving("n2")(v), "n2 is being decommissioned")
}

// TestProgress: the rest is estimated at the rate since the wait had the most open steps.
func TestProgress(t *testing.T) {
	steps := slices.Repeat([]string{"orders/7 is led by n2"}, 60)
	var p progress
	for _, x := range []struct {
		after time.Duration
		open  int
		want  string
	}{
		{0, 50, "50 of 50 to go: orders/7 is led by n2"},
		{time.Second, 60, "60 of 60 to go: orders/7 is led by n2"},
		{2 * time.Second, 60, "60 of 60 to go: orders/7 is led by n2"},
		{2500 * time.Millisecond, 50, "50 of 60 to go: orders/7 is led by n2"},
		{4 * time.Second, 40, "40 of 60 to go, about 4s: orders/7 is led by n2"},
		{5 * time.Second, 1, "1 of 60 to go, about 1s: orders/7 is led by n2"},
	} {
		require.Equal(t, x.want, p.text(time.Unix(0, 0).Add(x.after), steps[:x.open]))
	}
}
