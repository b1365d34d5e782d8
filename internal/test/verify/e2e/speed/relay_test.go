package speed

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/bench"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestRelayedThroughput consumes a backlog through the leader and through another
// broker, in turn: it measures the cost for a client that does not know the leader.
func TestRelayedThroughput(t *testing.T) {
	const topic = "relayed"
	c := e2etest.Start(t, 3)
	c.Create(topic, "bench0", 1)
	leader, err := c.Broker(c.Leader(topic))
	require.NoError(t, err)
	other := c.Other(leader.Name)
	for _, consumers := range []int{1, 4} {
		w := bench.Workload{
			Name: "backlog", Kind: bench.Consume, Connections: consumers, Size: 100, Messages: e2etest.Rounds(100_000, 1_000_000),
		}
		var direct, relayed, ratios, cpu []float64
		for range e2etest.Rounds(3, 9) {
			d, r := measure(c, w, topic, *leader), measure(c, w, topic, other)
			direct, relayed = append(direct, d.Rate), append(relayed, r.Rate)
			ratios, cpu = append(ratios, r.Rate/d.Rate), append(cpu, r.CPU.Seconds()/d.CPU.Seconds())
		}
		t.Logf("%d consumers: %.0f messages/s at the leader, %.0f relayed, ratio %.2f (%.2f to %.2f), %.1f × its CPU",
			consumers, median(direct), median(relayed), median(ratios), slices.Min(ratios), slices.Max(ratios), median(cpu))
		require.Greater(t, median(ratios), 0.6/e2etest.SlackFactor, "promised 0.6")
	}
}

// measure runs a workload once with all its clients at one broker.
func measure(c *e2etest.Cluster, w bench.Workload, topic string, at devcluster.Broker) bench.Run {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*e2etest.WaitLimit)
	defer cancel()
	cfg := &bench.Config{Addresses: []string{at.TCP}, Topic: topic, PIDs: pids(c)}
	cfg.Timeout, cfg.Scale = 2*time.Minute, 1
	run, err := bench.Measure(ctx, w, cfg)
	require.NoError(c.T, err)
	return run
}

func pids(c *e2etest.Cluster) (all []int) {
	for _, b := range c.Brokers {
		all = append(all, b.PID)
	}
	return all
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
