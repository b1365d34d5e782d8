package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/bench"
	"github.com/lockstepmq/lockstep/internal/devcluster"
)

// TestRelayedThroughput consumes a backlog through the leader and through another
// broker, in turn: it measures the cost for a client that does not know the leader.
func TestRelayedThroughput(t *testing.T) {
	const topic = "relayed"
	c := start(t, 3)
	c.create(topic, "bench0", 1)
	leader, err := c.Broker(c.leader(topic))
	require.NoError(t, err)
	other := c.other(leader.Name)
	for _, consumers := range []int{1, 4} {
		w := bench.Workload{
			Name: "backlog", Kind: bench.Consume, Connections: consumers, Size: 100, Messages: rounds(100_000, 1_000_000),
		}
		var direct, relayed, ratios, cpu []float64
		for range rounds(3, 9) {
			d, r := c.measure(w, topic, *leader), c.measure(w, topic, other)
			direct, relayed = append(direct, d.Rate), append(relayed, r.Rate)
			ratios, cpu = append(ratios, r.Rate/d.Rate), append(cpu, r.CPU.Seconds()/d.CPU.Seconds())
		}
		t.Logf("%d consumers: %.0f messages/s at the leader, %.0f relayed, ratio %.2f (%.2f to %.2f), %.1f × its CPU",
			consumers, median(direct), median(relayed), median(ratios), slices.Min(ratios), slices.Max(ratios), median(cpu))
		require.Greater(t, median(ratios), 0.6/slackFactor, "promised 0.6")
	}
}

// measure runs a workload once with all its clients at one broker.
func (c *cluster) measure(w bench.Workload, topic string, at devcluster.Broker) bench.Run {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*waitLimit)
	defer cancel()
	cfg := &bench.Config{Addresses: []string{at.TCP}, Topic: topic, PIDs: c.pids()}
	cfg.Timeout, cfg.Scale = 2*time.Minute, 1
	run, err := bench.Measure(ctx, w, cfg)
	require.NoError(c.t, err)
	return run
}

func (c *cluster) pids() (all []int) {
	for _, b := range c.Brokers {
		all = append(all, b.PID)
	}
	return all
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
