package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestEmptiedMessagesAreNotDelivered: they wait at the edge for credit of the client when the channel is emptied.
func TestEmptiedMessagesAreNotDelivered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(5)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(2, nil)
		require.Len(t, held, 2)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.NoError(t, q.EmptyChannel(t.Context(), "ch"))
		w.tick(100 * time.Millisecond)
		require.Empty(t, s.Pull(5, nil))
		require.Zero(t, s.InFlight())
		require.ErrorIs(t, s.Finish(held[0].ID), outcome.ErrNotInFlight)
	})
}

// TestHeldMessagesAreForgotten: when they are long past their timeouts and no leader has revoked them.
// A touch gives a message more time here, too.
func TestHeldMessagesAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: 2000})
		require.NoError(t, err)
		s.SetReady(10)
		w.publish("n1", numbers(2)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(2, nil)
		require.Len(t, held, 2)
		w.tick(1500 * time.Millisecond)
		require.NoError(t, s.Touch(held[0].ID))
		w.lead(top.Partition(0), "")    // nobody
		w.tick(2600 * time.Millisecond) // it is looked for once a second
		require.Equal(t, 1, s.InFlight())
		require.ErrorIs(t, s.Finish(held[1].ID), outcome.ErrNotInFlight)
		require.NoError(t, s.Finish(held[0].ID))
	})
}

// TestOldestOfAConsumer: the message that a client has held longest, with its attempt, whichever broker leads it.
func TestOldestOfAConsumer(t *testing.T) {
	for _, at := range []ident.Node{"n1", "n2"} { // the leader, and another broker
		t.Run(string(at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.topic("orders", "n1")
				s := w.brokers[at].subscribe(t, "orders", 10)
				require.Nil(t, s.Oldest())
				w.publish("n1", numbers(1)...)
				w.tick(100 * time.Millisecond)
				d := s.Pull(1, nil)
				require.Len(t, d, 1)
				require.NoError(t, s.Requeue(d[0].ID, 0))
				w.tick(100 * time.Millisecond)
				d = s.Pull(1, nil)
				require.Len(t, d, 1)
				w.tick(3 * time.Second)
				w.publish("n1", numbers(1)...)
				w.tick(time.Second)
				later := s.Pull(1, nil)
				require.Len(t, later, 1)
				require.NoError(t, s.Touch(d[0].ID))
				w.tick(time.Second)
				require.Equal(t, &api.HeldMessage{ID: d[0].ID, Attempts: 2, For: 5 * time.Second}, s.Oldest(), "a touch does not change since when")
				require.NoError(t, s.Finish(d[0].ID))
				require.Equal(t, &api.HeldMessage{ID: later[0].ID, Attempts: 1, For: time.Second}, s.Oldest())
			})
		})
	}
}

// TestFinishOfAStreamThatIsForgotten: the leader has not received it, and does over the next stream.
func TestFinishOfAStreamThatIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(5)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(5, nil)
		require.Len(t, held, 5)
		rs := w.brokers["n1"].gw.server.known("n2")
		for id := range rs.mu.streams {
			rs.drop(id, wire.LeaveWithdrawn)
		}
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		synctest.Wait()
		w.tick(time.Second)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.Equal(t, 5, finished(q, "ch"))
		require.Empty(t, s.Pull(5, nil))
	})
}

// TestBacklogIsCarriedOutOnce: by the broker itself when it leads.
func TestBacklogIsCarriedOutOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(5)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(5, nil)
		w.brokers["n1"].unlead(top.Partition(0))
		w.lead(top.Partition(0), "")
		w.tick(100 * time.Millisecond)
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		w.lead(top.Partition(0), "n2")
		w.tick(time.Second)
		q, _ := w.brokers["n2"].Queue(top.Partition(0))
		require.Equal(t, 5, finished(q, "ch"))
		sub := s.(*subscription)
		sub.mu.Lock()
		defer sub.mu.Unlock()
		require.Empty(t, sub.mu.order[0].backlog)
		require.Empty(t, w.brokers["n2"].gw.subs.mu.streams, "no stream is open")
	})
}

// TestHeldMessageThatWasFinishedMeanwhile: the broker leads now itself. The leader before it
// emptied the channel, and the revocation of the client's message is lost.
func TestHeldMessageThatWasFinishedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(3)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(3, nil)
		require.Len(t, held, 3)
		w.pipe("n1", "n2").set(true, false)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.NoError(t, q.EmptyChannel(t.Context(), "ch"))
		w.brokers["n1"].unlead(top.Partition(0))
		require.NoError(t, s.Finish(held[0].ID))
		w.lead(top.Partition(0), "n2")
		w.tick(100 * time.Millisecond)
		require.Zero(t, s.InFlight())
		require.ErrorIs(t, s.Finish(held[1].ID), outcome.ErrNotInFlight)
		sub := s.(*subscription)
		sub.mu.Lock()
		defer sub.mu.Unlock()
		require.Empty(t, sub.mu.order[0].held)
	})
}
