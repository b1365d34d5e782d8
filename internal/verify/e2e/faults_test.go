package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

const (
	topic, channel = "steady", "reader"
	sessionTTL     = 3 * time.Second // the default of --session-ttl
)

// steady is a cluster under load that has not hit anything yet.
type steady struct {
	*cluster
	*load
	sink *sink
}

// underLoad starts three brokers, producers at all of them and a consumer.
func underLoad(t *testing.T, partitions int) *steady {
	t.Helper()
	return start(t, 3).underLoad(partitions)
}

// underLoad makes a topic, producers at all brokers and a consumer.
func (c *cluster) underLoad(partitions int) *steady {
	c.t.Helper()
	c.create(topic, channel, partitions)
	return c.loaded(3)
}

// loaded starts producers at all brokers, so many each, and a consumer.
func (c *cluster) loaded(perBroker int) *steady {
	c.t.Helper()
	s := &steady{cluster: c, sink: c.consume(topic, channel)}
	const plenty = 2_000_000
	s.load = c.put(topic, newFeed(numbered("m", plenty), plenty), perBroker)
	s.waitAcked(1000)
	return s
}

// finish ends the load and judges all that was seen.
func (s *steady) finish(t *testing.T) history.Report {
	t.Helper()
	s.feed.end()
	s.wait()
	s.sink.waitDistinct(int(s.acked.Load()))
	s.drained(topic, channel)
	report := history.Check(s.load.history(s.sink), history.Limits{Redelivered: anyNumber})
	t.Logf("%s\n%+v", report, s.counters())
	require.Empty(t, report.Faults)
	s.requireUndisturbed()
	s.whole(topic)
	s.check(topic)
	return report
}

// TestStopContinue: the leader hangs for longer than its session; another one
// takes over, and when it wakes up nothing of it counts any more (P2, P7).
func TestStopContinue(t *testing.T) {
	s := underLoad(t, 1)
	var faults []fault
	for range rounds(1, 5) {
		faults = append(faults, s.hang(s.leader(topic), 5*time.Second))
	}
	s.finish(t)
	s.requireStalls(faults)
}

// TestStopForAMinute: the same with each broker in turn, each of which leads one
// partition and follows in two, and is the controller or not.
func TestStopForAMinute(t *testing.T) {
	if !env.Long() {
		env.Skip(t, "three minutes and more; LOCKSTEP_LONG=1")
	}
	c := start(t, 3)
	c.create(topic, channel, 3)
	s := c.loaded(1)
	var faults []fault
	for _, victim := range names(c) {
		faults = append(faults, s.hang(victim, time.Minute))
	}
	s.finish(t)
	s.requireStalls(faults)
}

// hang stops a broker for some time; its clients elsewhere wait no longer than
// until its session has run out.
func (s *steady) hang(victim string, d time.Duration) fault {
	s.t.Helper()
	f := fault{what: "stop of " + s.roles(victim).String(), limit: sessionTTL + time.Second, at: time.Now()}
	s.down.begin(victim)
	require.NoError(s.t, s.Signal(victim, syscall.SIGSTOP))
	pause(d)
	require.NoError(s.t, s.Signal(victim, syscall.SIGCONT))
	s.waitProgress(1000)
	s.requireLoad(f.at)
	s.down.end(victim)
	s.whole(topic)
	return f
}

// TestPlannedStop: every broker in turn is stopped, under load. Clients of other brokers
// do not notice, nothing is lost or stored twice (P7).
func TestPlannedStop(t *testing.T) {
	s := underLoad(t, 1)
	var faults []fault
	for range rounds(1, 5) {
		for _, victim := range names(s.cluster) {
			role := s.roles(victim)
			stopped := time.Now()
			s.down.begin(victim)
			require.NoError(t, s.Stop(victim, 20*time.Second))
			t.Logf("%s %s ended after %s", role, victim, time.Since(stopped).Round(time.Millisecond))
			s.waitProgress(500)
			s.requireLoad(stopped)
			s.restart(victim)
			s.whole(topic)
			pause(reconnect) // till then what this broker's clients see is excused
			faults = append(faults, fault{what: "planned stop of " + role.String(), limit: 200 * time.Millisecond, at: stopped})
		}
	}
	report := s.finish(t)
	s.requireStalls(faults)
	require.Zero(t, report.Copies, "bodies stored twice")
}
