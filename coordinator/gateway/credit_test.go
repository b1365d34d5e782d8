package gateway

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// credits are the credits of the streams of a subscription.
func credits(s api.Subscription) (each []int, sum int) {
	sub := s.(*subscription)
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, h := range sub.mu.order {
		each = append(each, h.remote.credit)
		sum += h.remote.credit
	}
	return each, sum
}

// store puts messages into one partition.
func (w *world) store(p ident.Partition, n int) {
	for i, m := range numbers(n) {
		d := draft(m)
		d.Request = ident.RequestID{Producer: 99, N: uint64(i)}
		w.commit(p, d)
	}
	w.brokers[w.leaders[p].Node].advance(p)
}

func TestCreditFollowsDemand(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n1", "n1", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 400)
		w.tick(time.Second)
		each, _ := credits(s)
		require.Equal(t, []int{100, 100, 100, 100}, each)

		w.store(top.Partition(2), 20_000)
		n := w.consume(s, 400, 20_000, time.Minute, func(d api.Delivery) { require.NoError(t, s.Finish(d.ID)) })
		require.Equal(t, 20_000, n)
		each, sum := credits(s)
		require.Greater(t, each[2], 400)
		require.Equal(t, 1, each[0], "no partition starves")
		require.LessOrEqual(t, sum, 803)

		w.tick(3 * time.Second)
		each, _ = credits(s)
		require.Equal(t, []int{100, 100, 100, 100}, each, "nobody asks for anything")
		s.SetReady(2)
		each, _ = credits(s)
		require.Equal(t, []int{1, 1, 1, 1}, each)
	})
}

// TestNoCreditIsLostInTheDivision: RDY need not be a multiple of the partitions.
func TestNoCreditIsLostInTheDivision(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		leaders := slices.Repeat([]ident.Node{"n1"}, 8)
		top := w.topic("orders", leaders...)
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.tick(time.Second)
		each, sum := credits(s)
		require.Equal(t, 10, sum, "%v", each)
		for ready := 8; ready < 40; ready++ {
			s.SetReady(ready)
			each, sum = credits(s)
			require.Equal(t, ready, sum, "%v", each)
		}
		w.store(top.Partition(2), 1000)
		w.store(top.Partition(5), 300)
		for range 3 {
			w.consume(s, 39, 300, 2*time.Second, func(d api.Delivery) { require.NoError(t, s.Finish(d.ID)) })
			sub := s.(*subscription)
			sub.mu.Lock()
			whole := sub.mu.ready + min(sub.mu.demand.ahead, sub.mu.ready)
			sub.mu.Unlock()
			each, sum = credits(s)
			require.GreaterOrEqual(t, sum, whole, "%v", each)
			require.LessOrEqual(t, sum, whole+len(leaders), "%v: each has at least 1", each)
		}
	})
}

// TestASlowClientGetsItsRDYOfOnePartition: the parts of partitions without messages go to the one that has all.
func TestASlowClientGetsItsRDYOfOnePartition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", slices.Repeat([]ident.Node{"n1"}, 8)...)
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.store(top.Partition(2), 1000)
		var held []api.Delivery
		for range 300 {
			w.tick(10 * time.Millisecond)
			held = s.Pull(10-len(held), held)
		}
		require.Len(t, held, 10, "so long after the first")
		w.store(top.Partition(5), 1000)
		w.tick(time.Second)
		require.NoError(t, s.Finish(held[0].ID))
		w.tick(10 * time.Millisecond)
		more := s.Pull(1, nil)
		require.Len(t, more, 1)
		held = append(held[1:], more...)
		w.tick(2 * time.Second)
		require.NoError(t, s.Finish(held[0].ID))
		each, _ := credits(s)
		require.Equal(t, []int{1, 1, 5, 1, 1, 5, 1, 1}, each)
	})
}

// TestMessagesSentAheadOfAClientThatStopsAreReturned: messages that the client has not
// seen go to another client, and the attempt does not count.
func TestMessagesSentAheadOfAClientThatStopsAreReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		inFlight := func() int { return q.Stats("ch", false).Channels[0].InFlightCount }
		s := w.brokers["n2"].subscribe(t, "orders", 100)
		w.store(top.Partition(0), 10_000)
		w.consume(s, 100, 5_000, time.Minute, func(d api.Delivery) { require.NoError(t, s.Finish(d.ID)) })
		held := s.Pull(100-s.InFlight(), nil)
		w.tick(5 * time.Millisecond)
		require.Greater(t, inFlight(), len(held), "sent ahead")
		w.tick(3 * time.Second)
		require.Equal(t, len(held), inFlight())

		other := w.brokers["n3"].subscribe(t, "orders", 100)
		n := w.consume(other, 100, 5_000-len(held), time.Minute, func(d api.Delivery) {
			require.EqualValues(t, 1, d.Message.Attempts)
			require.NoError(t, other.Finish(d.ID))
		})
		require.Equal(t, 5_000-len(held), n)
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		w.tick(time.Second)
		require.Empty(t, s.Refused())
		require.Zero(t, inFlight())
	})
}

// TestAClientThatLeavesCountsOnlyItsDeliveries: messages that wait at the broker in
// between are returned as if they had not been delivered.
func TestAClientThatLeavesCountsOnlyItsDeliveries(t *testing.T) {
	for _, requeue := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.topic("orders", "n1")
			s := w.brokers["n2"].subscribe(t, "orders", 10)
			w.store(top.Partition(0), 10)
			w.tick(time.Second)
			require.Len(t, s.Pull(3, nil), 3)
			s.Close(requeue)
			other, counted, unseen := w.brokers["n3"].subscribe(t, "orders", 10), 0, 0
			w.consume(other, 10, 10, time.Second, func(d api.Delivery) {
				if d.Message.Attempts == 1 {
					unseen++
				} else {
					counted++
				}
			})
			require.Equal(t, 7, unseen, "requeue %t, counted %d", requeue, counted)
			if requeue {
				require.Equal(t, 3, counted)
			} else {
				require.Zero(t, counted, "they wait for their timeout")
			}
		})
	}
}

// TestDeliveriesOnTheWayToAClientThatLeavesDoNotCount: the leader has sent them before the close of the stream arrives.
func TestDeliveriesOnTheWayToAClientThatLeavesDoNotCount(t *testing.T) {
	for _, requeue := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.topic("orders", "n1")
			s := w.brokers["n2"].subscribe(t, "orders", 10)
			w.store(top.Partition(0), 3)
			w.tick(time.Second)
			require.Len(t, s.Pull(3, nil), 3)
			w.store(top.Partition(0), 10)
			s.Close(requeue)
			other, attempts := w.brokers["n3"].subscribe(t, "orders", 10), map[uint16]int{}
			take := func() {
				w.consume(other, 10, 10, time.Second, func(d api.Delivery) {
					attempts[d.Message.Attempts]++
					require.NoError(t, other.Finish(d.ID))
				})
			}
			take()
			if !requeue {
				require.Equal(t, map[uint16]int{1: 7}, attempts, "what the client holds waits for its timeout")
				w.tick(time.Minute)
				take()
			}
			require.Equal(t, map[uint16]int{1: 7, 2: 3}, attempts)
			q, _ := w.brokers["n1"].Queue(top.Partition(0))
			require.Zero(t, q.Stats("ch", false).Channels[0].RequeueCount)
		})
	}
}

func TestASlowClientIsSentNothingAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 5)
		w.store(top.Partition(0), 1000)
		for range 500 { // 100 a second
			w.tick(10 * time.Millisecond)
			for _, d := range s.Pull(1, nil) {
				require.NoError(t, s.Finish(d.ID))
			}
			_, sum := credits(s)
			require.Equal(t, 5, sum)
		}
	})
}

// TestABusyClientKeepsNothingFromOthers: RDY 1 brings a message of each partition, and
// the client works on one of them for minutes.
func TestABusyClientKeepsNothingFromOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n1", "n1", "n1")
		busy := w.brokers["n2"].subscribe(t, "orders", 1)
		w.tick(time.Second)
		for n := range 4 {
			w.store(top.Partition(n), 2)
		}
		w.tick(10 * time.Millisecond)
		held := busy.Pull(1, nil)
		require.Len(t, held, 1)

		idle := w.brokers["n3"].subscribe(t, "orders", 1)
		n := w.consume(idle, 1, 7, 5*time.Second, func(d api.Delivery) {
			require.EqualValues(t, 1, d.Message.Attempts)
			require.NoError(t, idle.Finish(d.ID))
		})
		require.Equal(t, 7, n, "the others wait for the busy client")

		w.tick(30 * time.Second)
		idle.Close(true)
		w.tick(10 * time.Second)
		for n := range 4 {
			w.store(top.Partition(n), 3) // one more than before
		}
		require.NoError(t, busy.Finish(held[0].ID))
		require.Equal(t, 4, w.consume(busy, 1, 4, time.Second, func(d api.Delivery) {
			require.EqualValues(t, 1, d.Message.Attempts)
			require.NoError(t, busy.Finish(d.ID))
		}), "it is sent more as soon as it is free")
		require.Empty(t, busy.Refused())
	})
}

// TestAClientThatDoesNotReadIsSentLittle: RDY counts messages, and those of a
// megabyte would fill the broker in between. When the client reads, all come.
func TestAClientThatDoesNotReadIsSentLittle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const messages, bytes = 60, 1 << 20
		p := w.topic("orders", "n1").Partition(0)
		s := w.brokers["n2"].subscribe(t, "orders", 1000)
		w.tick(time.Second)
		for i := range messages {
			d := draft(strings.Repeat("x", bytes))
			d.Request = ident.RequestID{Producer: 99, N: uint64(i)}
			w.commit(p, d)
		}
		w.brokers["n1"].advance(p)
		w.tick(time.Second)
		q, _ := w.brokers["n1"].Queue(p)
		sent := func() int { return q.Stats("ch", false).Channels[0].InFlightCount }
		require.LessOrEqual(t, sent(), 2*waitingBytes/bytes)
		w.tick(5 * time.Second)
		require.GreaterOrEqual(t, sent(), waitingBytes/bytes, "nor is it taken back")
		n := w.consume(s, 1000, messages, time.Minute, func(d api.Delivery) {
			require.EqualValues(t, 1, d.Message.Attempts)
			require.NoError(t, s.Finish(d.ID))
		})
		require.Equal(t, messages, n)
		each, _ := credits(s)
		require.Greater(t, each[0], messages, "it is granted RDY again")
	})
}

// TestALeaderWaitsForAVerb: the bytes sent without a verb are bounded although the credit
// stays, and the stream continues although no verb ever comes.
func TestALeaderWaitsForAVerb(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const messages, bytes = 60, 1 << 20
		p := w.topic("orders", "n1").Partition(0)
		w.brokers["n2"].subscribe(t, "orders", 1000)
		w.tick(time.Second)
		w.pipe("n2", "n1").setLose(func(rpc.Frame) bool { return true })
		for i := range messages {
			d := draft(strings.Repeat("x", bytes))
			d.Request = ident.RequestID{Producer: 99, N: uint64(i)}
			w.commit(p, d)
		}
		w.brokers["n1"].advance(p)
		synctest.Wait()
		q, _ := w.brokers["n1"].Queue(p)
		sent := func() int { return q.Stats("ch", false).Channels[0].InFlightCount }
		for n := waitingBytes / bytes; n < messages; n += waitingBytes / bytes {
			require.Equal(t, n, sent())
			w.tick(answerPause)
			synctest.Wait()
		}
		require.Equal(t, messages, sent())
	})
}

// TestPullStopsAtLargeMessages: whatever it is that waits, and in how many partitions.
func TestPullStopsAtLargeMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const partitions, bytes = 16, 1 << 20
		topic := w.topic("orders", slices.Repeat([]ident.Node{"n1"}, partitions)...)
		s := w.brokers["n1"].subscribe(t, "orders", 1000)
		w.tick(time.Second)
		for n := range partitions {
			w.commit(topic.Partition(n), draft(strings.Repeat("x", bytes)))
			w.brokers["n1"].advance(topic.Partition(n))
		}
		for range partitions {
			select {
			case <-s.Wake():
			default:
				require.Fail(t, "nobody says that there is more")
			}
			require.Equal(t, max(1, pullBytes/bytes), len(s.Pull(256, nil)))
		}
	})
}

// TestAClientThatCollectsGetsItsRDY: it finishes nothing before it holds RDY messages,
// one of which is of a partition that is empty then.
func TestAClientThatCollectsGetsItsRDY(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n1", "n3")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.store(top.Partition(0), 1)
		w.store(top.Partition(1), 40)
		for n := range 3 {
			var held []api.MessageID
			w.consume(s, 10, 10, 5*time.Second, func(d api.Delivery) { held = append(held, d.ID) })
			require.Len(t, held, 10)
			w.store(top.Partition(2), n+1) // one more than before
			for _, id := range held {
				require.NoError(t, s.Finish(id))
			}
		}
	})
}

// TestPartsOfTheCredit: half evenly and half by the finishes, over the partitions
// that had messages, in all RDY; ahead of a fast client no more than RDY again.
func TestPartsOfTheCredit(t *testing.T) {
	for _, tt := range []struct {
		finished, held []int
		ready          int
		period         time.Duration
		want           []int
	}{
		{[]int{30, 10, 0, 0}, []int{0, 5, 1, 0}, 100, time.Second, []int{54, 29, 17, 1}},
		{[]int{0, 0, 0, 0}, []int{0, 0, 0, 0}, 100, time.Second, []int{25, 25, 25, 25}},
		{[]int{0, 0, 0, 0}, []int{0, 1, 0, 1}, 100, time.Second, []int{1, 50, 1, 50}},
		{[]int{1, 1, 1}, []int{0, 0, 0}, 10, time.Second, []int{3, 3, 4}},
		{[]int{1000, 0}, []int{0, 0}, 10, 10 * time.Millisecond, []int{20, 1}},
		{[]int{20, 0}, []int{0, 0}, 10, 50 * time.Millisecond, []int{12, 1}},
	} {
		s := &subscription{}
		s.mu.ready = tt.ready
		for i, n := range tt.finished {
			h := &partitionSubscription{sub: s, finished: n, held: map[ident.Sequence]holding{}}
			for seq := range tt.held[i] {
				h.held[ident.Sequence(seq)] = holding{}
			}
			s.mu.order = append(s.mu.order, h)
			s.mu.demand.finished += n
		}
		s.weighLocked(tt.period)
		var got []int
		for _, h := range s.mu.order {
			got = append(got, s.creditLocked(h))
		}
		require.Equal(t, tt.want, got, "%+v", tt)
	}
}

// TestMessagesThatExpireWhileTheyWaitForAClient go back to the leader, which finishes them. A slow client that finishes a message now
// and then got them long after their time to live.
func TestMessagesThatExpireWhileTheyWaitForAClient(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		q.SetTTL(5000)
		w.mu.Lock()
		state := w.topics["orders"]
		state.Options.TTLMS = 5000
		w.topics["orders"] = state
		w.mu.Unlock()
		w.store(top.Partition(0), 3)
		w.tick(4 * time.Second)
		require.Len(t, s.Pull(1, nil), 1, "they wait here")
		w.tick(3 * time.Second)
		require.Empty(t, s.Pull(10, nil))
		require.EqualValues(t, 2, q.Stats("ch", false).Channels[0].ExpiredCount)
	})
}

// TestABusyClientHoldsAllAndFinishesNothing: the period that has just been weighed has no finish.
func TestABusyClientHoldsAllAndFinishesNothing(t *testing.T) {
	s := &subscription{}
	s.mu.ready = 2
	s.mu.order = []*partitionSubscription{{sub: s, held: map[ident.Sequence]holding{1: {}, 2: {}}}}
	s.mu.demand.finished = 1
	s.refreshCredit(time.Second)
	require.False(t, s.mu.busy)
	s.refreshCredit(time.Second + weighEvery - 1)
	require.False(t, s.mu.busy)
	s.refreshCredit(2 * time.Second)
	require.True(t, s.mu.busy)
	delete(s.mu.order[0].held, 1)
	s.refreshCredit(3 * time.Second)
	require.False(t, s.mu.busy)
}

// TestMessagesThatWaitForAClientDoNotTimeOut: the time of a message begins when the client gets it, also with a timeout
// that is shorter than the credit's period.
func TestMessagesThatWaitForAClientDoNotTimeOut(t *testing.T) {
	for timeoutMS, waits := range map[int64]time.Duration{60_000: 3 * time.Minute, 400: 5 * time.Second} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.topic("orders", "n1")
			request := api.SubscribeRequest{Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: timeoutMS}
			s, err := w.brokers["n2"].gw.Subscribe(t.Context(), request)
			require.NoError(t, err)
			s.SetReady(10)
			w.store(top.Partition(0), 5)
			w.tick(waits)
			q, _ := w.brokers["n1"].Queue(top.Partition(0))
			require.Zero(t, q.Stats("ch", false).Channels[0].TimeoutCount)
			held := s.Pull(10, nil)
			require.Len(t, held, 5)
			for _, d := range held {
				require.EqualValues(t, 1, d.Message.Attempts)
				require.NoError(t, s.Finish(d.ID))
			}
			w.tick(time.Second)
			require.Empty(t, s.Refused())
		})
	}
}

// TestAfterABrokenLinkNothingOldIsDelivered: messages that waited for a client when the link to their leader broke may
// have been delivered to others since, finished, or expired. Only the leader knows.
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
