package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// controller is the broker that is the controller now.
func (c *cluster) controller() (name string) {
	c.t.Helper()
	c.until("a controller", func() bool {
		var v edge.ClusterView
		for _, b := range c.Brokers {
			if !c.down.isDown(b.Name) && c.get(b, "/v1/cluster", &v) == nil {
				name = string(v.Controller)
			}
		}
		return name != "" && !c.down.isDown(name)
	})
	return name
}

// p99 is the time that 99 % of the puts took that were answered OK between two moments.
func (l *load) p99(from, to time.Time) (p99 time.Duration, puts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for _, a := range l.attempts {
		if a.answer == history.OK && a.from.After(from) && a.to.Before(to) {
			took = append(took, a.to.Sub(a.from))
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)*99/100], len(took)
}

// TestBrokerIsDrained: a broker of 200 partitions is drained of its leaderships under puts at all
// brokers, and of its replicas, to a fourth broker. The drain outlives kill -9 of the controller,
// and of the drained broker, in the middle. No producer at a broker that is up sees an error.
func TestBrokerIsDrained(t *testing.T) {
	c := start(t, 4)
	c.create(topic, channel, 200)
	c.until("leaders where they are preferred", func() bool { return c.preferred(topic) })
	s := c.loaded(2)
	const drained = "n2"

	began := time.Now()
	pause(time.Duration(rounds(3, 30)) * time.Second)
	before, puts := s.p99(began, time.Now())
	led := c.led(drained)
	require.Greater(t, led, 40)
	t.Logf("before: %d puts, p99 %s; %s leads %d partitions", puts, before.Round(time.Microsecond), drained, led)

	began = time.Now()
	c.must("broker", "drain", drained, "--wait", "60s")
	took := time.Since(began)
	require.Zero(t, c.led(drained))
	during, puts := s.p99(began, time.Now())
	t.Logf("%d leaderships transferred in %s: %d puts, p99 %s", led, took.Round(time.Millisecond), puts, during.Round(time.Microsecond))
	c.must("cluster", "safe-to-stop", drained)
	out, err := c.nsqctl("cluster", "health")
	require.NoError(t, err, "a drained cluster is well: %s", out)
	require.Contains(t, out, "broker n2 is drained (leaders)")

	replicas := c.replicasOn(drained)
	began = time.Now()
	c.must("broker", "drain", drained, "--replicas")
	c.until("replicas on their way", func() bool { return c.replicasOn(drained) < replicas })
	for _, victim := range []string{c.controller(), drained} {
		c.kill(victim)
		t.Logf("%s was killed with %d of %d replicas left on %s", victim, c.replicasOn(drained), replicas, drained)
		c.restart(victim)
		c.whole(topic)
	}
	c.must("broker", "drain", drained, "--replicas", "--wait", "60s")
	require.Zero(t, c.replicasOn(drained))
	t.Logf("%d replicas moved in %s, with two brokers killed", replicas, time.Since(began).Round(time.Millisecond))
	c.must("cluster", "safe-to-stop", drained)

	c.must("broker", "undrain", drained)
	c.must("cluster", "balance", "--wait", "60s")
	require.NotZero(t, c.replicasOn(drained))
	s.finish(t)
}
