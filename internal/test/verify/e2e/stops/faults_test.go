package stops

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestStopContinue: the leader hangs for longer than its session; another one
// takes over, and when it wakes up nothing of it counts any more (P2, P7).
func TestStopContinue(t *testing.T) {
	s := e2etest.UnderLoad(t, 1)
	var faults []e2etest.Fault
	for range e2etest.Rounds(1, 5) {
		faults = append(faults, hang(s, s.Leader(e2etest.Topic), 5*time.Second))
	}
	s.Finish(t)
	s.RequireStalls(faults)
}

// TestStopForAMinute: the same with each broker in turn, each of which leads one
// partition and follows in two, and is the controller or not.
func TestStopForAMinute(t *testing.T) {
	if !env.Long() {
		env.Skip(t, "three minutes and more; LOCKSTEP_LONG=1")
	}
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	s := c.Loaded(1)
	var faults []e2etest.Fault
	for _, victim := range e2etest.Names(c) {
		faults = append(faults, hang(s, victim, time.Minute))
	}
	s.Finish(t)
	s.RequireStalls(faults)
}

// hang stops a broker for some time; its clients elsewhere wait no longer than
// until its session has run out.
func hang(s *e2etest.Steady, victim string, d time.Duration) e2etest.Fault {
	s.T.Helper()
	f := e2etest.Fault{What: "stop of " + s.Roles(victim).String(), Limit: e2etest.SessionTTL + time.Second, At: time.Now()}
	s.Down.Begin(victim)
	require.NoError(s.T, s.Signal(victim, syscall.SIGSTOP))
	e2etest.Pause(d)
	require.NoError(s.T, s.Signal(victim, syscall.SIGCONT))
	s.WaitProgress(1000)
	s.RequireLoad(f.At)
	s.Down.End(victim)
	s.Whole(e2etest.Topic)
	return f
}

// TestPlannedStop: every broker in turn is stopped, under load. Clients of other brokers
// do not notice, nothing is lost or stored twice (P7).
func TestPlannedStop(t *testing.T) {
	s := e2etest.UnderLoad(t, 1)
	var faults []e2etest.Fault
	for range e2etest.Rounds(1, 5) {
		for _, victim := range e2etest.Names(s.Cluster) {
			role := s.Roles(victim)
			stopped := time.Now()
			s.Down.Begin(victim)
			require.NoError(t, s.Stop(victim, 20*time.Second))
			t.Logf("%s %s ended after %s", role, victim, time.Since(stopped).Round(time.Millisecond))
			s.WaitProgress(500)
			s.RequireLoad(stopped)
			s.Restart(victim)
			s.Whole(e2etest.Topic)
			e2etest.Pause(e2etest.Reconnect) // till then what this broker's clients see is excused
			faults = append(faults, e2etest.Fault{What: "planned stop of " + role.String(), Limit: 200 * time.Millisecond, At: stopped})
		}
	}
	report := s.Finish(t)
	s.RequireStalls(faults)
	require.Zero(t, report.Copies, "bodies stored twice")
}
