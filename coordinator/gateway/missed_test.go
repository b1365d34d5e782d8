package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestWhatIsEmptiedIsNotDelivered: it waits at the edge, for a client that has not asked
// for it yet, when the channel is emptied.
func TestWhatIsEmptiedIsNotDelivered(t *testing.T) {
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
		require.ErrorIs(t, s.Finish(held[0].ID), edge.ErrNotInFlight)
	})
}

// TestHeldMessagesAreForgotten: when their time is long over and no leader has said so.
// A touch gives a message more time here, too.
func TestHeldMessagesAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s, err := w.brokers["n2"].gw.Subscribe(t.Context(), edge.SubscribeRequest{Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: 2000})
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
		require.ErrorIs(t, s.Finish(held[1].ID), edge.ErrNotInFlight)
		require.NoError(t, s.Finish(held[0].ID))
	})
}

// TestFinishOfAStreamThatIsForgotten: the leader has not heard it, and does over the next
// stream.
func TestFinishOfAStreamThatIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(5)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(5, nil)
		require.Len(t, held, 5)
		l := w.brokers["n1"].gw.server.known("n2")
		for id := range l.mu.streams {
			l.drop(id, withdrawn)
		}
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		synctest.Wait()
		w.tick(time.Second)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		c, _ := q.Channel("ch")
		require.EqualValues(t, 5, c.Finished())
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
		c, _ := q.Channel("ch")
		require.EqualValues(t, 5, c.Finished())
		sub := s.(*subscription)
		sub.mu.Lock()
		defer sub.mu.Unlock()
		require.Empty(t, sub.mu.order[0].backlog)
		require.Empty(t, w.brokers["n2"].gw.subs.mu.streams, "no stream is open")
	})
}

// TestLaneWithPutsStays: who has one under way waits for its answer, and who comes when
// it is gone finds another lane.
func TestLaneWithPutsStays(t *testing.T) {
	l := &lane{}
	p := &put{}
	l.mu.out.insertNew(p)
	require.False(t, l.retire())
	l.mu.out.remove(p)
	require.True(t, l.retire())
	require.False(t, l.add(p))
}

// TestLaneGivesUpWhatItMust: an attempt here has its answer in any case, one that never
// left is in no doubt, and no answer is taken for that to another put.
func TestLaneGivesUpWhatItMust(t *testing.T) {
	l := &lane{gateway: &Gateway{start: time.Now()}}
	p := &put{local: true, history: history{attempt: 2, doubts: []uint32{1}}}
	p.draft.Request = ident.RequestID{Producer: 7, N: 5}
	l.mu.out.insertNew(p)
	l.mu.byN = map[uint64]*put{5: p}
	l.lostAttempts(func(Leadership) bool { return true })
	require.False(t, p.parked)
	l.unsent(p, 1)
	require.Empty(t, p.doubts)
	require.Nil(t, l.find(ident.RequestID{Producer: 8, N: 5}), "of another run")
	require.Equal(t, p, l.find(p.draft.Request))

	_, last := l.settle(p, 0, replica.Committed, 0)
	require.True(t, last)
	_, last = l.settle(p, 0, replica.Committed, 0)
	require.False(t, last, "it has its answer")
}

// TestOlderHintsSayNothing: a peer that has not heard of the newest leader.
func TestOlderHintsSayNothing(t *testing.T) {
	l := &lane{}
	l.mu.suspect, l.mu.pause, l.mu.nextTry = true, time.Second, time.Hour
	l.setHint(Leadership{Node: "n2", Epoch: 5})
	require.Zero(t, l.mu.nextTry, "it is tried at once")
	l.setHint(Leadership{Node: "n3", Epoch: 4})
	require.Equal(t, ident.Node("n2"), l.hint().Node)
}

// TestHeldMessageThatWasFinishedMeanwhile: the broker leads now itself, and what its
// client holds was emptied by the leader before it, which it has not heard.
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
		require.ErrorIs(t, s.Finish(held[1].ID), edge.ErrNotInFlight)
		sub := s.(*subscription)
		sub.mu.Lock()
		defer sub.mu.Unlock()
		require.Empty(t, sub.mu.order[0].held)
	})
}
