package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
)

// A consumer with RDY 1 (go-nsq's default) at a broker that leads none of the four partitions takes 40 s for each
// message; the message timeout is 60 s. No message may time out: the client finishes each in time.
func TestMessagesThatWaitForASlowRelayedClientDoNotTimeOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n1", "n1", "n1")
		for n := range 4 {
			w.store(top.Partition(n), 3)
		}
		s := w.brokers["n2"].subscribe(t, "orders", 1)
		w.tick(time.Second)
		seen, again, most := map[api.MessageID]int{}, 0, uint16(0)
		for len(seen) < 12 && again < 50 {
			for _, d := range s.Pull(max(0, 1-s.InFlight()), nil) {
				if seen[d.ID]++; seen[d.ID] > 1 {
					again++
				}
				most = max(most, d.Message.Attempts)
				w.tick(40 * time.Second)
				_ = s.Finish(d.ID)
			}
			w.tick(10 * time.Millisecond)
		}
		w.tick(time.Second)
		timeouts := 0
		q := w.brokers["n1"]
		for n := range 4 {
			p, _ := q.Queue(top.Partition(n))
			timeouts += int(p.Stats("ch", false).Channels[0].TimeoutCount)
		}
		refused := 0
		for len(s.Refused()) > 0 {
			<-s.Refused()
			refused++
		}
		t.Logf("%d messages, %d came again, most attempts %d, timeouts %d, finishes refused %d", len(seen), again, most, timeouts, refused)
		require.Zero(t, again, "delivered twice although finished in time")
		require.EqualValues(t, 1, most, "attempts of a message that the client sees for the first time")
		require.Zero(t, timeouts)
		require.Zero(t, refused)
	})
}

// A consumer that is connected to a follower is in /stats of the leader.
func TestRelayedClientsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		w.store(top.Partition(0), 10)
		live := api.ClientStats{ClientID: "c", RemoteAddress: "a:1"} // as protocol.conn.stats: state is init while SUB runs
		s, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{
			Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: 60_000,
			Client: func() api.ClientStats { return live },
		})
		require.NoError(t, err)
		live.State = 3
		s.SetReady(5)
		n := w.consume(s, 5, 10, 10*time.Second, func(d api.Delivery) {
			live.MessageCount++
			require.NoError(t, s.Finish(d.ID))
			live.FinishCount++
		})
		require.Equal(t, 10, n)
		w.tick(2 * time.Second)
		p, _ := w.brokers["n1"].Queue(top.Partition(0))
		shown := p.Stats("ch", true).Channels[0].Clients[0]
		require.EqualValues(t, 3, shown.State)
		require.EqualValues(t, 10, shown.MessageCount)
		require.EqualValues(t, 10, shown.FinishCount)
	})
}

// The leader's refusal of a late FIN overtaken by the second delivery: refusals go
// by the sender, deliveries by the link's goroutine.
func TestALateRefusalDoesNotTouchTheNextDelivery(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 1)
		w.store(top.Partition(0), 1)
		w.tick(time.Second)
		first := s.Pull(1, nil)
		require.Len(t, first, 1)
		w.tick(61 * time.Second) // it times out and comes again
		second := s.Pull(1-s.InFlight(), nil)
		require.Len(t, second, 1)
		require.EqualValues(t, 2, second[0].Message.Attempts)
		h := s.(*subscription).mu.partitions[0]
		w.brokers["n2"].gw.subs.handle(wire.Verb{ // of the FIN that came in between
			Kind: wire.VerbFinish | wire.VerbRefused, Stream: h.remote.stream, Sequence: first[0].Message.Seq, Epoch: first[0].Epoch,
		})
		require.Len(t, s.Refused(), 1)
		require.NoError(t, s.Finish(second[0].ID), "the client holds it")
		w.tick(time.Second)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.Zero(t, q.Stats("ch", false).Channels[0].InFlightCount)
	})
}
