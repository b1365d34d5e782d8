package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// TestRepeatThatIsRolledBack: the first attempt was never answered, the second is rolled
// back. The first may be stored still, so that is not the put's end.
func TestRepeatThatIsRolledBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		w.brokers["n1"].judge = func(n int, _ queue.Draft) (outcome.Outcome, bool) {
			return []outcome.Outcome{outcome.InDoubt, outcome.RolledBack, 0, 0}[min(n, 3)], n > 0
		}
		a := w.publish("n2", "x")
		time.Sleep(8 * time.Second)
		requireOK(t, a, 1)
		require.GreaterOrEqual(t, w.brokers["n1"].proposed(), 3)
	})
}

// TestPutThatFindsNoRoom: a put that did not leave is not in doubt and tried again soon.
func TestPutThatFindsNoRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		w.pipe("n2", "n1").set(false, true)
		a := w.publish("n2", "x")
		time.Sleep(10 * time.Millisecond)
		w.pipe("n2", "n1").set(false, false)
		time.Sleep(300 * time.Millisecond)
		requireOK(t, a, 1)
	})
}

// TestFinishThatFindsNoConnection: a finish that could not be sent goes over the next stream.
func TestFinishThatFindsNoConnection(t *testing.T) {
	for _, full := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.topic("orders", "n1")
			s := w.brokers["n2"].subscribe(t, "orders", 10)
			w.publish("n1", numbers(5)...)
			w.tick(100 * time.Millisecond)
			held := s.Pull(5, nil)
			require.Len(t, held, 5)
			w.pipe("n2", "n1").set(!full, full) // without a notification
			for _, d := range held {
				require.NoError(t, s.Finish(d.ID))
			}
			synctest.Wait()
			w.pipe("n2", "n1").set(false, false)
			w.tell()
			w.tick(2 * time.Second)
			q, _ := w.brokers["n1"].Queue(top.Partition(0))
			require.Equal(t, 5, finished(q, "ch"))
		})
	}
}

// TestFinishWhenTheLeaderHasJustGone: the channel here no longer serves, and the
// subscription is not detached from it yet.
func TestFinishWhenTheLeaderHasJustGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n1"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(20)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(5, nil)
		w.brokers["n1"].unlead(top.Partition(0))
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		w.lead(top.Partition(0), "n2")
		w.finishRest(t, s, 15)
		q, _ := w.brokers["n2"].Queue(top.Partition(0))
		require.Equal(t, 20, finished(q, "ch"))
	})
}

// TestRelayKeepsItsOrder: verbs that wait for room go before later ones.
func TestRelayKeepsItsOrder(t *testing.T) {
	s := newSender(nil)
	item := func(n ident.Sequence) relayItem {
		return relayItem{Verb: wire.Verb{Kind: wire.VerbFinish, Sequence: n}}
	}
	s.relay("n2", item(3), item(4))
	s.putBack("n2", nil, []relayItem{item(1), item(2)})
	require.Equal(t, []relayItem{item(1), item(2), item(3), item(4)}, s.mu.peers["n2"].relay)
}

// TestForwardedPutIsChecked: followers would refuse a batch that does not pass its
// checksum, and the partition stand still.
func TestForwardedPutIsChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		forward := func(change func(*wire.Put)) int {
			d := draft("x")
			r := wire.Put{
				Request: ident.RequestID{Producer: 1, N: 1}, Partition: top.Partition(0), Attempt: 1,
				Count: 1, CRC: d.PayloadCRC, Length: uint32(len(d.Bytes) - queue.HeaderSize),
			}
			change(&r)
			h, err := rpc.Marshal(wire.Header{Kind: wire.FramePuts, Count: 1})
			require.NoError(t, err)
			before := w.brokers["n1"].proposed()
			w.brokers["n1"].gw.HandleFrame("n2", 101, rpc.Received{Class: rpc.ClassForward, Header: h, Payload: append(wire.AppendPut(nil, r), d.Bytes...)})
			synctest.Wait()
			return w.brokers["n1"].proposed() - before
		}
		require.Zero(t, forward(func(r *wire.Put) { r.CRC++ }))
		require.Zero(t, forward(func(r *wire.Put) { r.Count++ }))
		require.Zero(t, forward(func(r *wire.Put) { r.Count = 0 }))
		require.Zero(t, forward(func(r *wire.Put) { r.Length-- }))
		require.Zero(t, forward(func(r *wire.Put) { r.Request = ident.RequestID{} }))
		require.Equal(t, 1, forward(func(*wire.Put) {}))
	})
}

// TestHangUpEndsTheWait: a client that hangs up does not wait for room any more.
func TestHangUpEndsTheWait(t *testing.T) {
	b := &putBudget{limit: 10}
	require.True(t, b.take(10))
	hungUp := make(chan struct{})
	close(hungUp)
	require.Error(t, b.wait(t.Context(), hungUp, 1))
	require.Empty(t, b.mu.waiters)
}

// TestNothingStaysOfAPut: neither of an answered one, nor the put queue of a deleted topic.
func TestNothingStaysOfAPut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		g := w.brokers["n2"].gw
		a := w.publish("n2", numbers(10)...)
		time.Sleep(100 * time.Millisecond)
		requireOK(t, a, 10)
		require.Empty(t, g.queueOf("orders", top.Partition(0)).mu.byN)
		w.mu.Lock()
		delete(w.topics, "orders")
		w.mu.Unlock()
		w.tell()
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, g.allQueues())
	})
}

// TestAnswerThatFindsNoRoom: the answer to a put waits for room.
func TestAnswerThatFindsNoRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		w.pipe("n1", "n2").set(false, true)
		a := w.publish("n2", "x")
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, a.all())
		w.pipe("n1", "n2").set(false, false)
		time.Sleep(100 * time.Millisecond)
		requireOK(t, a, 1)
	})
}

// finished is the number of finished messages of a channel.
func finished(q *nsqd.Partition, channel string) int {
	s := q.Stats(channel, false).Channels[0]
	return int(s.MessageCount) - int(s.Depth) - s.InFlightCount - s.DeferredCount
}
