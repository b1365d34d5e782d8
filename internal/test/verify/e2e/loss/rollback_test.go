package loss

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestRollback: both followers of a topic hang while etcd does not, for longer
// than a write may take. Puts that only the leader has written are rolled back, and the
// producers, whose puts are retried, notice only the time (P3).
func TestRollback(t *testing.T) {
	s, _, wake := hangingFollowers(t)
	stopped := time.Now()
	e2etest.Pause(rollbackTime)
	wake()
	s.WaitProgress(1000)
	t.Logf("answers after the stop: %v; %s without puts", answers(s.Load, stopped), silence(s.Load, stopped).Round(time.Millisecond))
	s.Back()
	s.Whole(e2etest.Topic)
	s.Finish(t)
	got := s.Counters()
	require.NotZero(t, got.Rollbacks+got.Truncations, "void: nothing was taken back")
}

// TestRolledBackIsFinal: the same, but the leader dies before the followers wake,
// which have the puts in their sockets and may keep them. A put that was answered
// "rolled back" must not be stored (P3).
func TestRolledBackIsFinal(t *testing.T) {
	s, leader, wake := hangingFollowers(t)
	stopped := time.Now()
	e2etest.Pause(rollbackTime)
	s.Crash(leader)
	wake()
	s.WaitProgress(1000)
	t.Logf("answers after the stop: %v", answers(s.Load, stopped))
	s.Restart(leader)
	s.Back()
	s.Whole(e2etest.Topic)
	s.Finish(t)
}

// rollbackTime is beyond the write timeout and the grace after it.
const rollbackTime = 6 * time.Second

// hangingFollowers puts to a topic with three of five brokers and stops the two
// that follow; wake lets them continue. The peer timeout and the session are longer than the stop: a leader
// rolls puts back only while its followers count as answering, and are registered (RB-2).
func hangingFollowers(t *testing.T) (s *e2etest.Steady, leader string, wake func()) {
	c := e2etest.Start(t, 5, "--peer-timeout=9s", "--session-ttl=20s")
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	leader = c.Leader(e2etest.Topic)
	v, _ := c.Topic(e2etest.Topic)
	s = c.Loaded(3)
	for _, name := range e2etest.Names(c) { // an answer "not enough replicas" must be true
		c.Down.Begin(name)
	}
	followers := func(sig syscall.Signal) {
		for _, r := range v.Partitions[0].Replicas {
			if string(r) != leader {
				require.NoError(t, c.Signal(string(r), sig))
			}
		}
	}
	followers(syscall.SIGSTOP)
	return s, leader, func() { followers(syscall.SIGCONT) }
}

// answers counts the answers to producers since a moment.
func answers(l *e2etest.Load, since time.Time) map[string]int {
	n := map[string]int{}
	for _, a := range l.Attempted() {
		if a.To.After(since) {
			n[a.Answer.String()]++
		}
	}
	return n
}

// silence is the longest time since a moment in which nothing was acknowledged.
func silence(l *e2etest.Load, since time.Time) (gap time.Duration) {
	for _, a := range l.Attempted() {
		if a.Answer == judge.OK && a.To.After(since) {
			gap, since = max(gap, a.To.Sub(since)), a.To
		}
	}
	return gap
}
