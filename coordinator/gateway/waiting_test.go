package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/rpc"
)

// TestAfterABrokenLinkNothingOldIsDelivered: messages that waited for a client when the link to their leader broke may have been
// delivered to others since, finished, or expired. Only the leader knows.
func TestAfterABrokenLinkNothingOldIsDelivered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.store(top.Partition(0), 3)
		w.tick(100 * time.Millisecond)
		w.setDown("n2", true)
		w.tick(reclaimTime + time.Second)
		other := w.brokers["n3"].subscribe(t, "orders", 10)
		require.Equal(t, 3, w.consume(other, 10, 3, time.Second, func(d api.Delivery) { require.NoError(t, other.Finish(d.ID)) }))
		w.pipe("n2", "n1").setLose(func(rpc.Frame) bool { return true }) // the opening is on its way
		w.setDown("n2", false)
		w.tick(50 * time.Millisecond)
		require.Empty(t, s.Pull(10, nil))
		w.pipe("n2", "n1").setLose(nil)
		w.tick(3 * time.Second)
		require.Empty(t, s.Pull(10, nil))
	})
}

// TestShortTimeoutsBeginAtTheClient: a message that waits for its client does not time out, and has no attempt of it.
func TestShortTimeoutsBeginAtTheClient(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: 400})
		require.NoError(t, err)
		s.SetReady(10)
		w.store(top.Partition(0), 5)
		w.tick(5 * time.Second)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.Zero(t, q.Stats("ch", false).Channels[0].TimeoutCount)
		held := s.Pull(10, nil)
		require.Len(t, held, 5)
		for _, d := range held {
			require.EqualValues(t, 1, d.Message.Attempts)
		}
	})
}
