package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
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

// span is a time between two moments.
type span struct{ from, to time.Time }

// since is the time from a moment until now.
func since(from time.Time) span { return span{from, time.Now()} }

// latency is how long puts took that were answered OK.
type latency struct {
	puts     int
	p50, p99 time.Duration
	rate     float64 // puts a second
}

// String implements fmt.Stringer.
func (l latency) String() string {
	return fmt.Sprintf("%d puts (%.0f/s), p50 %s, p99 %s", l.puts, l.rate, l.p50.Round(10*time.Microsecond), l.p99.Round(10*time.Microsecond))
}

// latency is that of the puts that began in these times.
func (l *load) latency(spans ...span) (all latency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	var length time.Duration
	for _, s := range spans {
		length += s.to.Sub(s.from)
	}
	for _, a := range l.attempts {
		if a.answer == history.OK && slices.ContainsFunc(spans, func(s span) bool { return a.from.After(s.from) && a.from.Before(s.to) }) {
			took = append(took, a.to.Sub(a.from))
		}
	}
	if len(took) == 0 {
		return all
	}
	slices.Sort(took)
	return latency{len(took), took[len(took)/2], took[len(took)*99/100], float64(len(took)) / length.Seconds()}
}

// pace lets bodies go out at a rate until stop is called, each when its time has come. Producers that
// are slower take as many as they can.
func (f *feed) pace(perSecond int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		began := time.Now()
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				f.allow(int(time.Since(began).Seconds() * float64(perSecond)))
			case <-end:
				tick.Stop()
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// fill publishes so many MiB to a topic, to all its partitions.
func (c *cluster) fill(topic string, mib int) {
	c.t.Helper()
	line := strings.Repeat("x", 16<<10)
	body := strings.Repeat(line+"\n", 64)
	for i := range mib {
		resp, err := passing.Post(fmt.Sprintf("http://%s/mpub?topic=%s&key=%d", c.Brokers[i%len(c.Brokers)].HTTP, topic, i), "", strings.NewReader(body))
		require.NoError(c.t, err)
		_ = resp.Body.Close()
		require.Equal(c.t, http.StatusOK, resp.StatusCode)
	}
}

// TestBrokerIsDrained: a broker of 200 partitions is drained of its leaderships under 5,000 puts a second at all
// brokers, and of its replicas, to a fourth broker. The drain outlives kill -9 of the controller,
// and of the drained broker, in the middle. No producer at a broker that is up sees an error.
// LOCKSTEP_CATCH_UP_RATE is the throttle of the brokers (--catch-up-rate).
func TestBrokerIsDrained(t *testing.T) {
	c := start(t, 4, fmt.Sprintf("--catch-up-rate=%d", env.Number(t, "LOCKSTEP_CATCH_UP_RATE", 0)))
	c.create("bulk", "keeps", 40)
	c.fill("bulk", rounds(20, 400))
	c.must("topic", "create", topic, "--partitions", "200")
	c.must("channel", "create", topic, channel)
	c.whole(topic)
	c.until("leaders where they are preferred", func() bool { return c.preferred(topic) })
	const plenty = 2_000_000
	f := newFeed(numbered("m", plenty), 0)
	t.Cleanup(f.pace(5000))
	s := &steady{cluster: c, sink: c.consume(topic, channel), load: c.put(topic, f, 4)}
	s.waitAcked(1000)
	const drained = "n2"
	led := c.led(drained)
	require.Greater(t, led, 40)

	var calm, transfers []span
	for range rounds(2, 10) {
		began := time.Now()
		pause(time.Duration(rounds(1, 3)) * time.Second)
		calm = append(calm, since(began))
		began = time.Now()
		c.until("the drain", func() bool { // a disk that is busy for seconds may answer for the metadata too late
			out, err := c.nsqctl("broker", "drain", drained, "--wait", "60s")
			if err != nil {
				t.Logf("%v: %s", err, out)
			}
			return err == nil
		})
		transfers = append(transfers, since(began))
		require.Zero(t, c.led(drained))
		t.Logf("%d leaderships transferred in %s", led, time.Since(began).Round(time.Millisecond))
		if len(calm) < rounds(2, 10) {
			c.must("broker", "undrain", drained)
			c.until("leaders where they are preferred", func() bool { return c.preferred(topic) })
		}
	}
	before, during := s.latency(calm...), s.latency(transfers...)
	t.Logf("before: %s", before)
	t.Logf("while leaderships are transferred: %s (%.1f times)", during, float64(during.p99)/float64(before.p99))
	if env.Long() { // on a machine that does nothing else
		require.LessOrEqual(t, during.p99, slack(2*before.p99))
	}
	c.must("cluster", "safe-to-stop", drained)
	out, err := c.nsqctl("cluster", "health")
	require.NoError(t, err, "a drained cluster is well: %s", out)
	require.Contains(t, out, "broker n2 is drained (leaders)")

	replicas := c.replicasOn(drained)
	began := time.Now()
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
	replicas, began = c.replicasOn(drained), time.Now()
	c.must("broker", "drain", drained, "--replicas", "--wait", "120s")
	require.Zero(t, c.replicasOn(drained))
	moved := since(began)
	t.Logf("%d replicas moved in %s: %s (%.1f times)", replicas, moved.to.Sub(began).Round(time.Millisecond), s.latency(moved), float64(s.latency(moved).p99)/float64(before.p99))
	if env.Long() {
		require.LessOrEqual(t, s.latency(moved).p99, slack(2*before.p99))
	}
	s.finish(t)
}
