package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// An attempt that was forwarded to a leader and has no answer is given up as soon as the metadata names another leader,
// or another run of the same process: otherwise it would have no answer before resendAfter. It is not given up, and
// so not repeated, while the same run leads, or while the metadata lags behind the leader that a peer named. All
// connections stand in these tests.

// silentFirst has a broker take the first put and never answer it.
func silentFirst(n int, _ queue.Draft) (outcome.Outcome, bool) {
	if n == 0 {
		return outcome.InDoubt, false
	}
	return 0, true
}

// elect lets the metadata name a leader in the next epoch.
func (w *world) elect(p ident.Partition, node ident.Node, run ident.Incarnation) {
	w.mu.Lock()
	w.epoch++
	w.leaders[p] = Leadership{Node: node, Incarnation: run, Epoch: w.epoch}
	w.mu.Unlock()
	w.tell()
	synctest.Wait()
}

func TestAttemptAtADeposedLeaderIsGivenUp(t *testing.T) {
	for next, run := range map[ident.Node]ident.Incarnation{
		"n1": 200, // it was registered again
		"n3": 102,
	} {
		t.Run(string(next), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := w.topic("orders", "n1").Partition(0)
				w.brokers["n1"].judge = silentFirst
				a := w.publish("n2", "x")
				synctest.Wait()
				require.Equal(t, 1, w.brokers["n1"].proposed())
				require.Empty(t, a.all())
				w.elect(p, next, run) // no time passes from here on
				requireOK(t, a, 1)
			})
		})
	}
}

// TestAttemptStaysWithTheRunThatLeads: a leader that begins another epoch of its own, as
// for a rollback, still has the put and answers it.
func TestAttemptStaysWithTheRunThatLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.topic("orders", "n1").Partition(0)
		w.brokers["n1"].judge = silentFirst
		a := w.publish("n2", "x")
		synctest.Wait()
		for range 3 {
			w.elect(p, "n1", w.brokers["n1"].Incarnation())
		}
		require.Empty(t, a.all())
		require.Equal(t, 1, w.brokers["n1"].proposed())
	})
}

// TestAttemptAtALeaderThatAPeerNamed: the broker's metadata lags and names the leader of an earlier epoch. Neither
// changes of the cluster in between nor the late metadata have the put repeated.
func TestAttemptAtALeaderThatAPeerNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.topic("orders", "n1").Partition(0)
		before, _ := w.brokers["n2"].Leader(p)
		w.brokers["n2"].lags.Store(&before)
		w.brokers["n3"].judge = silentFirst
		w.lead(p, "n3")
		synctest.Wait()
		a := w.publish("n2", "x") // to n1, which names n3
		time.Sleep(2 * firstPause)
		require.Equal(t, 1, w.brokers["n1"].proposed())
		require.Equal(t, 1, w.brokers["n3"].proposed())
		for range 3 {
			w.tell()
			synctest.Wait()
		}
		w.brokers["n2"].lags.Store(nil)
		w.tell()
		synctest.Wait()
		require.Empty(t, a.all())
		require.Equal(t, 1, w.brokers["n1"].proposed())
		require.Equal(t, 1, w.brokers["n3"].proposed())
	})
}

// TestPutQueueWithPutsStays: a queue with a put in progress is not retired. A retired one takes no put.
func TestPutQueueWithPutsStays(t *testing.T) {
	q := &putQueue{}
	p := &put{}
	q.mu.inFlight.insertNew(p)
	require.False(t, q.retire())
	q.mu.inFlight.remove(p)
	require.True(t, q.retire())
	require.False(t, q.add(p))
}

// TestPutQueueGivesUpLostAttempts: a local attempt is not given up, one that was
// never sent is not in doubt, and an answer is not taken for that to another put.
func TestPutQueueGivesUpLostAttempts(t *testing.T) {
	q := &putQueue{gateway: &Gateway{start: time.Now()}}
	p := &put{local: true, history: history{attempt: 2, doubts: []uint32{1}}}
	p.draft.Request = ident.RequestID{Producer: 7, N: 5}
	q.mu.inFlight.insertNew(p)
	q.mu.byN = map[uint64]*put{5: p}
	q.lostAttempts(func(*put) bool { return true })
	require.False(t, p.parked)
	q.unsent(p, 1)
	require.Empty(t, p.doubts)
	require.Nil(t, q.find(ident.RequestID{Producer: 8, N: 5}), "of another run")
	require.Equal(t, p, q.find(p.draft.Request))

	_, last := q.settle(p, 0, outcome.Completion{Outcome: outcome.Committed})
	require.True(t, last)
	_, last = q.settle(p, 0, outcome.Completion{Outcome: outcome.Committed})
	require.False(t, last, "it has its answer")
}

// TestOlderHintsAreIgnored: a peer names a leader of an earlier epoch.
func TestOlderHintsAreIgnored(t *testing.T) {
	q := &putQueue{}
	q.mu.suspect, q.mu.pause, q.mu.nextTry = true, time.Second, time.Hour
	q.setHint(Leadership{Node: "n2", Epoch: 5})
	require.Zero(t, q.mu.nextTry, "it is tried at once")
	q.setHint(Leadership{Node: "n3", Epoch: 4})
	require.Equal(t, ident.Node("n2"), q.mu.hint.Node)
}
