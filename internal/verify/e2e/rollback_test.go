package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestKillAllUnderLoad: followers die first, the leader a moment later, with puts
// that only it has written. The followers come back alone and go on without
// those; the old leader has to give them up (P1 to P3).
func TestKillAllUnderLoad(t *testing.T) {
	s := underLoad(t, 1)
	truncations := uint64(0)
	for i := range rounds(3, 20) {
		leader := s.leader(topic)
		followers := slices.DeleteFunc(names(s.cluster), func(n string) bool { return n == leader })
		for _, name := range append(slices.Clone(followers), leader) {
			s.down.begin(name)
			require.NoError(t, s.Signal(name, syscall.SIGKILL))
		}
		for _, name := range names(s.cluster) {
			require.NoError(t, s.Kill(name))
		}
		for _, name := range followers {
			require.NoError(t, s.Start(name))
		}
		for _, name := range followers {
			s.readyAgain(name)
		}
		s.waitProgress(200)
		s.restart(leader)
		s.whole(topic)
		n := s.counters().Truncations
		t.Logf("round %d: leader was %s, truncations %d", i+1, leader, n)
		truncations += n
		s.waitProgress(500)
	}
	s.finish(t)
	t.Logf("truncations: %d", truncations)
	if env.Long() {
		require.NotZero(t, truncations, "void: nobody ever had to give anything up")
	}
}

// TestRollback: both followers of a topic hang while etcd does not, for longer
// than a write may take. Puts that only the leader has written are rolled back, and the
// producers, whose puts are retried, notice only the time (P3).
func TestRollback(t *testing.T) {
	s, _, wake := hangingFollowers(t)
	stopped := time.Now()
	pause(rollbackTime)
	wake()
	s.waitProgress(1000)
	t.Logf("answers after the stop: %v; %s without puts", s.answers(stopped), s.silence(stopped).Round(time.Millisecond))
	s.back()
	s.whole(topic)
	s.finish(t)
	got := s.counters()
	require.NotZero(t, got.Rollbacks+got.Truncations, "void: nothing was taken back")
}

// TestRolledBackIsFinal: the same, but the leader dies before the followers wake,
// which have the puts in their sockets and may keep them. A put that was answered
// "rolled back" must not be stored (P3).
func TestRolledBackIsFinal(t *testing.T) {
	s, leader, wake := hangingFollowers(t)
	stopped := time.Now()
	pause(rollbackTime)
	s.kill(leader)
	wake()
	s.waitProgress(1000)
	t.Logf("answers after the stop: %v", s.answers(stopped))
	s.restart(leader)
	s.back()
	s.whole(topic)
	s.finish(t)
}

// rollbackTime is beyond the write timeout and the grace after it.
const rollbackTime = 6 * time.Second

// hangingFollowers puts to a topic with three of five brokers and stops the two
// that follow; wake lets them go on. The peer timeout and the session are longer than the stop: a leader
// rolls puts back only while its followers count as answering, and are registered (RB-2).
func hangingFollowers(t *testing.T) (s *steady, leader string, wake func()) {
	c := start(t, 5, "--peer-timeout=9s", "--session-ttl=20s")
	c.create(topic, channel, 1)
	leader = c.leader(topic)
	v, _ := c.topic(topic)
	s = c.loaded(3)
	for _, name := range names(c) { // an answer "not enough replicas" must be true
		c.down.begin(name)
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
func (l *load) answers(since time.Time) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, a := range l.attempts {
		if a.to.After(since) {
			n[a.answer.String()]++
		}
	}
	return n
}

// silence is the longest time since a moment in which nothing was acknowledged.
func (l *load) silence(since time.Time) (gap time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.attempts {
		if a.answer == history.OK && a.to.After(since) {
			gap, since = max(gap, a.to.Sub(since)), a.to
		}
	}
	return gap
}
