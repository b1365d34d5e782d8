package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

const testDelay = 5 * time.Second

// requeueLater requeues a message of a partition that n1 leads, by a client of n2, with a delay. lost: n1 does not receive it.
func (w *world) requeueLater(t *testing.T, lost bool) (p ident.Partition, s api.Subscription, requeued time.Time) {
	p = w.topic("orders", "n1").Partition(0)
	s = w.brokers["n2"].subscribe(t, "orders", 10)
	w.publish("n1", "later")
	w.tick(100 * time.Millisecond)
	held := s.Pull(1, nil)
	require.Len(t, held, 1)
	w.pipe("n2", "n1").setLose(func(rpc.Frame) bool { return lost })
	require.NoError(t, s.Requeue(held[0].ID, testDelay.Milliseconds()))
	return p, s, time.Now()
}

// requireDelay: the message comes when the delay is over, and no verb was refused.
func (w *world) requireDelay(t *testing.T, s api.Subscription, requeued time.Time) {
	require.Equal(t, 1, w.consume(s, 1, 1, 2*testDelay, func(d api.Delivery) {
		require.EqualValues(t, 2, d.Message.Attempts)
		require.InDelta(t, testDelay, time.Since(requeued), float64(100*time.Millisecond))
	}))
	require.Empty(t, s.Refused())
}

// crash ends a leader. Its changes that are not replicated are lost.
func (w *world) crash(leader ident.Node, p ident.Partition) {
	w.kill(leader)
	w.lead(p, "")
}

// TestADelayOutlivesTheLeader: the leader crashes before another replica has the requeue, or before it receives it. No leader
// after it redelivers the message before the delay is over.
func TestADelayOutlivesTheLeader(t *testing.T) {
	for name, row := range map[string]struct {
		lost bool
		next []ident.Node
	}{
		"not replicated, then the client's broker": {next: []ident.Node{"n2"}},
		"not replicated, then another":             {next: []ident.Node{"n3"}},
		"not received, then the client's broker":   {lost: true, next: []ident.Node{"n2"}},
		"not received, then another":               {lost: true, next: []ident.Node{"n3"}},
		"twice":                                    {next: []ident.Node{"n3", "n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				leader := ident.Node("n1")
				p, s, requeued := w.requeueLater(t, row.lost)
				for _, next := range row.next {
					synctest.Wait()
					w.crash(leader, p)
					w.tick(time.Second)
					w.lead(p, next)
					leader = next
					time.Sleep(time.Second) // no tick: nothing is replicated
				}
				w.requireDelay(t, s, requeued)
			})
		})
	}
}

// TestADelayThatTheNextLeaderHas is neither restarted nor refused.
func TestADelayThatTheNextLeaderHas(t *testing.T) {
	for _, next := range []ident.Node{"n1", "n2", "n3"} {
		t.Run(string(next), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p, s, requeued := w.requeueLater(t, false)
				w.tick(time.Second)
				if next == "n1" { // the connection breaks
					w.setDown("n1", true)
					w.tick(time.Second)
					w.setDown("n1", false)
				} else {
					w.crash("n1", p)
					w.lead(p, next)
				}
				w.requireDelay(t, s, requeued)
			})
		})
	}
}

// TestADelayWithoutALeader begins when the client requeues, not when there is a leader.
func TestADelayWithoutALeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.topic("orders", "n1").Partition(0)
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", "later")
		w.tick(100 * time.Millisecond)
		held := s.Pull(1, nil)
		require.Len(t, held, 1)
		w.crash("n1", p)
		w.tick(time.Second)
		requeued := time.Now()
		require.NoError(t, s.Requeue(held[0].ID, testDelay.Milliseconds()))
		w.tick(time.Second)
		w.lead(p, "n3")
		w.requireDelay(t, s, requeued)
	})
}
