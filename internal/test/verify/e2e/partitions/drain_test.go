package partitions

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// controller is the broker that is the controller now.
func controller(c *e2etest.Cluster) (name string) {
	c.T.Helper()
	c.Until("a controller", func() bool {
		var v api.ClusterView
		for _, b := range c.Brokers {
			if !c.Down.IsDown(b.Name) && c.Get(b, "/v1/cluster", &v) == nil {
				name = string(v.Controller)
			}
		}
		return name != "" && !c.Down.IsDown(name)
	})
	return name
}

// span is a time between two moments.
type span struct{ from, to time.Time }

// since is the time from a moment until now.
func since(from time.Time) span { return span{from, time.Now()} }

// latency is how long puts took that were answered OK, from the time when they were due: a put that waits for a
// producer counts its wait.
type latency struct {
	puts     int
	p50, p99 time.Duration
	rate     float64 // puts a second
}

// String implements fmt.Stringer.
func (l latency) String() string {
	return fmt.Sprintf("%d puts (%.0f/s), p50 %s, p99 %s", l.puts, l.rate, l.p50.Round(10*time.Microsecond), l.p99.Round(10*time.Microsecond))
}

// latencyOf is that of the puts that were due in these times.
func latencyOf(l *e2etest.Load, spans ...span) (all latency) {
	var took []time.Duration
	var length time.Duration
	for _, s := range spans {
		length += s.to.Sub(s.from)
	}
	for _, a := range l.Attempted() {
		if a.Answer == judge.OK && slices.ContainsFunc(spans, func(s span) bool { return a.Due.After(s.from) && a.Due.Before(s.to) }) {
			took = append(took, a.To.Sub(a.Due))
		}
	}
	if len(took) == 0 {
		return all
	}
	slices.Sort(took)
	return latency{len(took), took[len(took)/2], took[len(took)*99/100], float64(len(took)) / length.Seconds()}
}

// fillTopic publishes so many MiB to a topic, to all its partitions.
func fillTopic(c *e2etest.Cluster, topic string, mib int) {
	c.T.Helper()
	line := strings.Repeat("x", 16<<10)
	body := strings.Repeat(line+"\n", 64)
	for i := range mib {
		resp, err := e2etest.Passing.Post(fmt.Sprintf("http://%s/mpub?topic=%s&key=%d", c.Brokers[i%len(c.Brokers)].HTTP, topic, i), "", strings.NewReader(body))
		require.NoError(c.T, err)
		_ = resp.Body.Close()
		require.Equal(c.T, http.StatusOK, resp.StatusCode)
	}
}

// caughtUp waits, in the long form, until the producers are not behind: else a measurement would be one of their queue.
func caughtUp(s *e2etest.Steady) {
	s.T.Helper()
	if env.Long() {
		s.Until("producers that are not behind", func() bool { return s.Feed.Behind() <= 1 })
	}
}

// TestBrokerIsDrained: a broker of 200 partitions is drained of its leaderships under puts at all
// brokers, and of its replicas, to a fourth broker. The drain outlives kill -9 of the controller,
// and of the drained broker, in the middle. No producer at a broker that is up sees an error.
// LOCKSTEP_PUTS is the number of puts a second (5,000 in the long form, for which most of the 64 producers are
// idle), LOCKSTEP_DRAINS how often the leaderships are transferred, and LOCKSTEP_CATCH_UP_RATE the throttle of
// the brokers (--catch-up-rate). With LOCKSTEP_CONSUME_LATE=1 the consumer comes after all that: it needs as much of the
// processors as the producers.
func TestBrokerIsDrained(t *testing.T) {
	c := e2etest.Start(t, 4, fmt.Sprintf("--catch-up-rate=%d", env.Number(t, "LOCKSTEP_CATCH_UP_RATE", 0)))
	c.Create("bulk", "keeps", 40)
	fillTopic(c, "bulk", e2etest.Rounds(20, 400))
	c.Must("topic", "create", e2etest.Topic, "--partitions", "200")
	c.Must("channel", "create", e2etest.Topic, e2etest.Channel)
	c.Whole(e2etest.Topic)
	c.Until("leaders where they are preferred", func() bool { return c.Preferred(e2etest.Topic) })
	const plenty = 2_000_000
	const moveLimit = "240s" // the throttle may be a hundredth of what the disk can do
	f := e2etest.NewFeed(e2etest.Numbered("m", plenty), 0)
	t.Cleanup(f.Pace(env.Number(t, "LOCKSTEP_PUTS", e2etest.Rounds(1000, 5000))))
	s := &e2etest.Steady{Cluster: c, Load: c.Put(e2etest.Topic, f, 16)}
	late := env.Number(t, "LOCKSTEP_CONSUME_LATE", 0) != 0
	if !late {
		s.Sink = c.Consume(e2etest.Topic, e2etest.Channel)
	}
	drains := env.Number(t, "LOCKSTEP_DRAINS", e2etest.Rounds(1, 10))
	s.WaitAcked(1000)
	const drained = "n2"
	led := ledBy(c, drained)
	require.Greater(t, led, 40)

	var calm, transfers []span
	for range drains {
		caughtUp(s)
		began := time.Now()
		// As long as a drain: occasionally all puts wait for 0.1 to 0.3 s, with or without one.
		e2etest.Pause(time.Duration(e2etest.Rounds(1, 16)) * time.Second)
		calm = append(calm, since(began))
		began = time.Now()
		c.Until("the drain", func() bool { // a disk that is busy for seconds may answer for the metadata too late
			out, err := c.Nsqctl("broker", "drain", drained, "--wait", "60s")
			if err != nil {
				t.Logf("%v: %s", err, out)
			}
			return err == nil
		})
		transfers = append(transfers, since(began))
		require.Zero(t, ledBy(c, drained))
		t.Logf("%d leaderships transferred in %s", led, time.Since(began).Round(time.Millisecond))
		if len(calm) < drains {
			c.Must("broker", "undrain", drained)
			c.Until("leaders where they are preferred", func() bool { return c.Preferred(e2etest.Topic) })
		}
	}
	before, during := latencyOf(s.Load, calm...), latencyOf(s.Load, transfers...)
	t.Logf("before: %s", before)
	t.Logf("while leaderships are transferred: %s (%.1f times)", during, float64(during.p99)/float64(before.p99))
	if env.Long() { // on a machine that does nothing else
		require.LessOrEqual(t, during.p99, e2etest.Slack(2*before.p99))
	}
	// A member that the machine has stopped for a second comes back soon.
	mayStop := func() bool { _, err := c.Nsqctl("cluster", "safe-to-stop", drained); return err == nil }
	c.Until("a drained broker that may stop", mayStop)
	c.Until("a drained cluster that is well", func() bool {
		out, err := c.Nsqctl("cluster", "health")
		return err == nil && strings.Contains(out, "broker n2 is drained (leaders)")
	})

	replicas := c.ReplicasOn(drained)
	began := time.Now()
	c.Must("broker", "drain", drained, "--replicas")
	c.Until("replicas on their way", func() bool { return c.ReplicasOn(drained) < replicas })
	for _, victim := range []string{controller(c), drained} {
		c.Crash(victim)
		t.Logf("%s was killed with %d of %d replicas left on %s", victim, c.ReplicasOn(drained), replicas, drained)
		c.Restart(victim)
		c.Whole(e2etest.Topic)
	}
	c.Must("broker", "drain", drained, "--replicas", "--wait", moveLimit)
	require.Zero(t, c.ReplicasOn(drained))
	t.Logf("%d replicas moved in %s, with two brokers killed", replicas, time.Since(began).Round(time.Millisecond))
	c.Until("a drained broker that may stop", mayStop)

	if env.Long() { // the transfers alone take a minute
		c.Must("broker", "undrain", drained)
		c.Must("cluster", "balance", "--wait", moveLimit)
		require.NotZero(t, c.ReplicasOn(drained))
		caughtUp(s)
		replicas, began = c.ReplicasOn(drained), time.Now()
		c.Must("broker", "drain", drained, "--replicas", "--wait", moveLimit)
		require.Zero(t, c.ReplicasOn(drained))
		moved := since(began)
		t.Logf("%d replicas moved in %s: %s (%.1f times)", replicas, moved.to.Sub(began).Round(time.Millisecond), latencyOf(s.Load, moved), float64(latencyOf(s.Load, moved).p99)/float64(before.p99))
		require.LessOrEqual(t, latencyOf(s.Load, moved).p99, e2etest.Slack(2*before.p99))
	}
	if late {
		f.End()
		s.Sink = c.Consume(e2etest.Topic, e2etest.Channel)
	}
	s.Finish(t)
}
