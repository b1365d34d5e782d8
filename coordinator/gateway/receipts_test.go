package gateway

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// receive pulls one message for a client whose messages time out after 3 s, and returns its subscription and the receipt.
func (w *world) receive(t *testing.T, at ident.Node) (api.Subscription, api.Receipt) {
	t.Helper()
	request := api.SubscribeRequest{Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: 3000}
	s, err := w.brokers[at].gw.Subscribe(t.Context(), request)
	require.NoError(t, err)
	s.SetReady(1)
	w.tick(100 * time.Millisecond)
	d := s.Pull(1, nil)
	require.Len(t, d, 1)
	s.SetReady(0)
	return s, api.Receipt{ID: d[0].ID, Epoch: d[0].Epoch, Number: d[0].Number}
}

// A change of leader does not make a receipt valid for longer than the timeout of its delivery, wherever the client of the
// delivery is.
func TestAReceiptKeepsItsTimeout(t *testing.T) {
	for name, next := range map[string]ident.Node{"the client's broker leads": "n2", "another leads": "n3"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := w.topic("orders", "n1").Partition(0)
				w.publish("n1", "work")
				_, r := w.receive(t, "n2")
				w.tick(2 * time.Second)
				w.crash("n1", p)
				w.tick(500 * time.Millisecond)
				w.lead(p, next)
				w.tick(100 * time.Millisecond)
				other := w.brokers["n3"].subscribe(t, "orders", 10)
				w.tick(100 * time.Millisecond)
				settle := func(verb api.Verb) error {
					return w.brokers["n3"].gw.Settle(t.Context(), "orders", "ch", api.Settlement{Verb: verb}, []api.Receipt{r})[0]
				}
				require.Empty(t, other.Pull(1, nil), "the new leader has the claim")
				w.tick(400 * time.Millisecond)
				require.Len(t, other.Pull(1, nil), 1)
				for _, verb := range []api.Verb{api.VerbFinish, api.VerbRequeue, api.VerbTouch} {
					require.ErrorIs(t, settle(verb), outcome.ErrNotOwner)
				}
			})
		})
	}
}

// A message timed out, and another client has finished it since. Its first client's receipt stays refused at the leader, also
// when the leader takes a new epoch.
func TestAReceiptIsNotSettledAlready(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.topic("orders", "n1").Partition(0)
		w.publish("n1", "work")
		s, r := w.receive(t, "n1")
		other := w.brokers["n2"].subscribe(t, "orders", 10)
		w.tick(3100 * time.Millisecond)
		d := other.Pull(1, nil)
		require.Len(t, d, 1)
		require.NoError(t, other.Finish(d[0].ID))
		w.tick(100 * time.Millisecond)
		q, _ := w.brokers["n1"].Queue(p)
		q.Lead(99)
		require.Len(t, s.(*subscription).mu.order[0].held, 1, "not forgotten yet")
		require.ErrorIs(t, s.Settle(r, api.Settlement{Verb: api.VerbFinish}), outcome.ErrNotInFlight)
	})
}

// A leader that is cut off from its replicas does not give the messages of an edge without contact to another client before
// their timeouts: the edge keeps their receipts, and claims them from the next leader.
func TestALeaderAloneReleasesNothing(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "with its replicas": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.topic("orders", "n1")
				w.publish("n1", "work")
				w.receive(t, "n2")
				other := w.brokers["n1"].subscribe(t, "orders", 10)
				w.brokers["n1"].alone.Store(alone)
				w.setDown("n2", true)
				w.tick(2500 * time.Millisecond)
				require.Equal(t, alone, len(other.Pull(1, nil)) == 0)
			})
		})
	}
}

// TestAReceiptMakesRoomAtOnce: the message of another partition comes as soon as the leader, at another broker, has settled the one
// before by its receipt, also if its client worked for so long that it was sent nothing.
func TestAReceiptMakesRoomAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n1", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 1)
		for n := range 3 {
			w.store(top.Partition(n), 1)
		}
		w.tick(100 * time.Millisecond)
		for range 3 {
			d := s.Pull(1, nil)
			require.Len(t, d, 1)
			w.tick(2300 * time.Millisecond) // it works
			r := api.Receipt{ID: d[0].ID, Epoch: d[0].Epoch, Number: d[0].Number}
			require.Equal(t, []error{nil}, w.brokers["n2"].gw.Settle(t.Context(), "orders", "ch", api.Settlement{Verb: api.VerbFinish}, []api.Receipt{r}))
			w.tick(20 * time.Millisecond)
		}
	})
}

// TestATouchByReceiptOutlivesTheLink: the client's broker does not know of a touch at another broker, and names an earlier end of the
// timeout when it opens the stream again.
func TestATouchByReceiptOutlivesTheLink(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		w.publish("n1", "work")
		_, r := w.receive(t, "n2") // the timeout is 3 s
		other := w.brokers["n1"].subscribe(t, "orders", 10)
		w.tick(2 * time.Second)
		settle := func(verb api.Verb) []error {
			return w.brokers["n3"].gw.Settle(t.Context(), "orders", "ch", api.Settlement{Verb: verb}, []api.Receipt{r})
		}
		require.Equal(t, []error{nil}, settle(api.VerbTouch))
		w.setDown("n2", true)
		w.tick(100 * time.Millisecond)
		w.setDown("n2", false)
		w.tick(2 * time.Second)
		require.Empty(t, other.Pull(10, nil), "it was touched")
		require.Equal(t, []error{nil}, settle(api.VerbFinish))
	})
}
