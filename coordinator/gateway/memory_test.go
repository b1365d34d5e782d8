package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// unread subscribes clients that read nothing, each to a channel of its own.
func (w *world) unread(t *testing.T, at ident.Node, clients int, memory limits.Share) (subs []api.Subscription) {
	for i := range clients {
		s, err := w.brokers[at].gw.Subscribe(t.Context(), api.SubscribeRequest{
			Topic: "orders", Channel: fmt.Sprint("unread", i), Partition: -1, MsgTimeoutMS: 60_000, Memory: memory,
		})
		require.NoError(t, err)
		s.SetReady(2500)
		subs = append(subs, s)
	}
	return subs
}

// held sums the memory of messages that wait for the clients of a broker.
func held(subs []api.Subscription) (bytes int) {
	for _, s := range subs {
		x := s.(*subscription)
		x.mu.Lock()
		for _, h := range x.mu.order {
			if h.remote != nil {
				bytes += h.remote.buffer.bytes
			}
		}
		x.mu.Unlock()
	}
	return bytes
}

// TestUnreadMessagesShareMemory: clients that read nothing, at a broker that does not lead, hold at most the share of their
// user. The leader stops sending, another user's client is served, and when they read they get everything.
func TestUnreadMessagesShareMemory(t *testing.T) {
	const mib, clients, messages = 1 << 20, 40, 100
	for _, size := range []int{60 << 10, 300} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.topic("orders", "n1", "n1")
			memory := limits.New(24 * mib)
			subs := w.unread(t, "n2", clients, memory.Share("greedy"))
			body := strings.Repeat("m", size)
			n := messages * (60 << 10) / size / 8
			for i := range n {
				d := draft(body)
				d.Request = ident.RequestID{Producer: 99, N: uint64(i)}
				w.commit(top.Partition(i%2), d)
			}
			w.brokers["n1"].advance(top.Partition(0))
			w.brokers["n1"].advance(top.Partition(1))
			w.tick(3 * time.Second)
			require.LessOrEqual(t, held(subs), 8*mib+clients*limits.Free, "a third, and what each connection has of its own")
			require.LessOrEqual(t, memory.Used(), int64(8*mib))

			sent := w.pipe("n1", "n2").count()
			w.tick(time.Second)
			require.Less(t, w.pipe("n1", "n2").count()-sent, 20*clients, "the leader stops")

			other, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "other", Partition: -1, MsgTimeoutMS: 60_000, Memory: memory.Share("other")})
			require.NoError(t, err)
			other.SetReady(100)
			all := append(subs, other)
			for _, s := range []api.Subscription{other, subs[0], subs[clients-1]} {
				require.Equal(t, n, w.consume(s, 2500, n, time.Minute, func(d api.Delivery) {
					require.EqualValues(t, 1, d.Message.Attempts)
					require.NoError(t, s.Finish(d.ID))
					s.Written([]api.Delivery{d})
				}))
			}
			for _, s := range all {
				s.Close(true)
			}
			require.Zero(t, memory.Used())
			require.Zero(t, memory.Held(limits.Deliveries))
		})
	}
}

func (p *pipe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// TestAConnectionHoldsItsPart: also with many partitions, and alone in the budget.
func TestAConnectionHoldsItsPart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var leaders []ident.Node
		for range 32 {
			leaders = append(leaders, "n1")
		}
		top := w.topic("orders", leaders...)
		memory := limits.New(1 << 30)
		subs := w.unread(t, "n2", 1, memory.Share("a"))
		for p := range leaders {
			for i := range 8 {
				d := draft(strings.Repeat("m", 100<<10))
				d.Request = ident.RequestID{Producer: 99, N: uint64(i)}
				w.commit(top.Partition(p), d)
			}
			w.brokers["n1"].advance(top.Partition(p))
		}
		w.tick(2 * time.Second)
		require.LessOrEqual(t, held(subs), 2*waitingBytes)
		require.Greater(t, held(subs), waitingBytes/2)
	})
}

// TestMessagesOfThisBrokerShareMemory: what a client was given and has not read counts, also where the partition is led.
func TestMessagesOfThisBrokerShareMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const mib, clients = 1 << 20, 20
		top := w.topic("orders", "n1")
		for i := range 10 {
			d := draft(strings.Repeat("m", mib))
			d.Request = ident.RequestID{Producer: 99, N: uint64(i)}
			w.commit(top.Partition(0), d)
		}
		w.brokers["n1"].advance(top.Partition(0))
		memory := limits.New(24 * mib)
		subs := w.unread(t, "n1", clients, memory.Share("a"))
		pulled := make([][]api.Delivery, clients)
		total := 0
		for range 3 {
			for i, s := range subs {
				had := len(pulled[i])
				pulled[i] = s.Pull(256, pulled[i])
				total += len(pulled[i]) - had
			}
			w.tick(dryPause)
		}
		require.InDelta(t, 8, total, 1, "a third")
		for _, s := range subs {
			require.LessOrEqual(t, s.InFlight(), 8)
		}
		for i := range subs {
			subs[i].Written(pulled[i])
		}
		require.Zero(t, memory.Used())
		w.tick(2 * dryPause)
		select {
		case <-subs[0].Wake():
		default:
			require.Fail(t, "nobody says that there is more")
		}
		last := subs[clients-1]
		require.Equal(t, 10-last.InFlight(), w.consume(last, 100, 10-last.InFlight(), time.Second, func(d api.Delivery) {
			require.EqualValues(t, 1, d.Message.Attempts)
			last.Written([]api.Delivery{d})
		}))
	})
}

// TestAWaitingMessageKeepsNoOthers: a message that waits has memory of its own, not a frame with messages of all clients.
func TestAWaitingMessageKeepsNoOthers(t *testing.T) {
	var p pieces
	for _, size := range []int{1, 100, 1000, pieceBytes, 1 << 20} {
		for range 10 {
			a := p.copy(make([]byte, size))
			require.Len(t, a, size)
			require.Equal(t, size, cap(a), "an append cannot write into the next one")
			require.LessOrEqual(t, cap(p.rest), max(size, pieceBytes))
		}
	}
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 100)
		w.publish("n3", numbers(100)...)
		w.tick(time.Second)
		for _, d := range s.Pull(100, nil) {
			require.Equal(t, len(d.Message.Body), cap(d.Message.Body))
		}
	})
}

// TestAClientThatReadsAgainHasItsCredit: its leader sent more than waits for a client that does not read. That what was
// too much went back says nothing about memory, and so the credit comes back with the first messages that the client reads.
func TestAClientThatReadsAgainHasItsCredit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 1000)
		w.tick(time.Second)
		x := s.(*subscription)
		for _, h := range x.mu.order {
			run := make([]api.Delivery, 9)
			for i := range run {
				run[i].Epoch, run[i].Number, run[i].Message = 1, uint64(i+1), queue.Message{Seq: ident.Sequence(i), Body: make([]byte, waitingBytes/4)}
			}
			w.brokers["n2"].gw.subs.arrive(h.remote.stream, run)
		}
		each, _ := credits(s)
		require.Equal(t, []int{7, 0}, each)
		require.Len(t, s.Pull(5, nil), 5)
		_, sum := credits(s)
		require.GreaterOrEqual(t, sum, 1000)
	})
}
