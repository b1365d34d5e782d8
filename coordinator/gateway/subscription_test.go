package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

func (b *broker) subscribe(t testing.TB, topic string, ready int) api.Subscription {
	t.Helper()
	s, err := b.gw.Subscribe(t.Context(), api.SubscribeRequest{
		Topic: topic, Channel: "ch", Partition: -1, MsgTimeoutMS: 60_000,
		Client: func() api.ClientStats { return api.ClientStats{ClientID: "c"} },
	})
	require.NoError(t, err)
	s.SetReady(ready)
	return s
}

// consume pulls until n deliveries came or the time is over.
func (w *world) consume(s api.Subscription, ready, n int, limit time.Duration, each func(api.Delivery)) int {
	got := 0
	for end := time.Now().Add(limit); got < n && time.Now().Before(end); {
		for _, d := range s.Pull(min(ready-s.InFlight(), n-got), nil) {
			got++
			each(d)
		}
		w.tick(5 * time.Millisecond)
	}
	return got
}

// finishRest takes n messages that nobody had before; no finish is refused.
func (w *world) finishRest(t *testing.T, s api.Subscription, n int) {
	t.Helper()
	seen := map[string]bool{}
	require.Equal(t, n, w.consume(s, 10, n, 5*time.Second, func(d api.Delivery) {
		require.EqualValues(t, 1, d.Message.Attempts)
		require.False(t, seen[body(d)])
		seen[body(d)] = true
		require.NoError(t, s.Finish(d.ID))
	}))
	w.tick(time.Second)
	require.Empty(t, s.Refused())
}

func body(d api.Delivery) string { return string(d.Message.Body) }

func TestSubscriptionIsRelayed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		for _, at := range []ident.Node{"n1", "n2"} {
			s := w.brokers[at].subscribe(t, "orders", 50)
			w.publish("n3", numbers(500)...)
			var got []string
			n := w.consume(s, 50, 500, 10*time.Second, func(d api.Delivery) {
				got = append(got, body(d))
				require.EqualValues(t, 1, d.Message.Attempts)
				require.NoError(t, s.Finish(d.ID))
				require.ErrorIs(t, s.Finish(d.ID), outcome.ErrNotInFlight)
			})
			require.Equal(t, 500, n)
			require.Equal(t, numbers(500), got)
			w.tick(time.Second)
			require.Zero(t, s.InFlight())
			require.Empty(t, s.Refused())
			s.Close(true)
			synctest.Wait()
		}
	})
}

// TestDeliveryOfAnotherConnection: only the holder of a message may finish it.
func TestDeliveryOfAnotherConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		holder, other := w.brokers["n1"].subscribe(t, "orders", 1), w.brokers["n1"].subscribe(t, "orders", 0)
		w.brokers["n1"].put(&answers{}, "orders", "x")
		require.Equal(t, 1, w.consume(holder, 1, 1, time.Second, func(d api.Delivery) {
			require.ErrorIs(t, other.Finish(d.ID), outcome.ErrNotOwner)
			require.ErrorIs(t, other.Requeue(d.ID, 0), outcome.ErrNotOwner)
			require.ErrorIs(t, other.Touch(d.ID), outcome.ErrNotOwner)
			require.NoError(t, holder.Finish(d.ID))
			require.ErrorIs(t, other.Finish(d.ID), outcome.ErrNotInFlight)
		}))
		holder.Close(true)
		other.Close(true)
		synctest.Wait()
	})
}

func TestCreditIsNeverExceeded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 7)
		w.publish("n1", numbers(100)...)
		w.tick(time.Second)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.Equal(t, 7, q.Stats("ch", false).Channels[0].InFlightCount)
		held := s.Pull(7, nil)
		require.Len(t, held, 7)
		require.Equal(t, 7, s.InFlight())
		s.SetReady(0)
		require.NoError(t, s.Finish(held[0].ID))
		w.tick(time.Second)
		require.Empty(t, s.Pull(7, nil))
	})
}

func TestReadyZeroReturnsMessagesSentAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(10)...)
		w.tick(time.Second)
		held := s.Pull(2, nil)
		require.Len(t, held, 2)
		s.SetReady(0)
		w.tick(time.Second)
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		require.Equal(t, 2, q.Stats("ch", false).Channels[0].InFlightCount)
		other := w.brokers["n3"].subscribe(t, "orders", 10)
		require.Equal(t, 8, w.consume(other, 10, 8, time.Second, func(api.Delivery) {}))
		require.NoError(t, s.Finish(held[0].ID))
		w.tick(time.Second)
		require.Empty(t, s.Refused())
	})
}

func TestSmallReadyReachesEveryPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n3", "n1", "n2", "n3", "n1", "n3", "n2")
		a := &answers{}
		for n := range top.Partitions {
			for range 5 {
				l, _ := w.brokers["n1"].Leader(top.Partition(n))
				b := w.brokers[l.Node]
				b.gw.enqueueForTest(top, n, draft(fmt.Sprint(n)), a)
			}
		}
		synctest.Wait()
		s := w.brokers["n2"].subscribe(t, "orders", 1)
		seen := map[string]int{}
		require.Equal(t, 40, w.consume(s, 1, 40, 5*time.Second, func(d api.Delivery) {
			seen[body(d)]++
			require.NoError(t, s.Finish(d.ID))
		}))
		require.Len(t, seen, 8)
	})
}

// enqueueForTest publishes to a chosen partition.
func (g *Gateway) enqueueForTest(t metadata.TopicState, n int, d queue.Draft, a api.Answerer) {
	g.budget.take(int64(d.Size()))
	if p, err := g.enqueue("orders", t.Partition(n), d, a); err == nil {
		p.queue.pump()
	}
}

// TestAStreamWithoutAnEdgeEnds: its client left while the leader was silent for this
// broker alone, so that the leader received neither the close nor a broken connection.
func TestAStreamWithoutAnEdgeEnds(t *testing.T) {
	for _, idle := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.topic("orders", "n1")
			s := w.brokers["n2"].subscribe(t, "orders", 10)
			w.tick(time.Second)
			w.pipe("n2", "n1").set(true, false)
			w.brokers["n2"].gw.PeerDown("n1")
			s.Close(true)
			w.tick(100 * time.Millisecond)
			w.pipe("n2", "n1").set(false, false)
			w.tell()
			if idle {
				w.tick(2 * forgottenAfter)
				q, _ := w.brokers["n1"].Queue(top.Partition(0))
				require.Zero(t, q.Stats("ch", false).Channels[0].ClientCount)
			}
			other := w.brokers["n3"].subscribe(t, "orders", 10)
			w.store(top.Partition(0), 10)
			require.Equal(t, 10, w.consume(other, 10, 10, 2*forgottenAfter, func(d api.Delivery) {
				require.EqualValues(t, 1, d.Message.Attempts)
				require.NoError(t, other.Finish(d.ID))
			}))
		})
	}
}

// TestALeaderThatSleptKeepsItsStreams: no credit came for long, but the streams are there.
func TestALeaderThatSleptKeepsItsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.store(top.Partition(0), 10)
		w.tick(time.Second)
		held := s.Pull(10, nil)
		require.Len(t, held, 10)
		other := w.brokers["n3"].subscribe(t, "orders", 10)
		w.tick(keepAlive / 2) // between two words of the edge, so that none comes as the leader gives up
		w.pipe("n2", "n1").setLose(func(rpc.Frame) bool { return true })
		w.tick(forgottenAfter)
		w.pipe("n2", "n1").setLose(nil)
		w.tick(5 * time.Second)
		require.Empty(t, append(s.Pull(10, nil), other.Pull(10, nil)...))
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		w.tick(time.Second)
		require.Empty(t, s.Refused())
		q, _ := w.brokers["n1"].Queue(top.Partition(0))
		st := q.Stats("ch", false).Channels[0]
		require.Zero(t, st.Depth+int64(st.InFlightCount))
	})
}

// TestEphemeralChannelStaysOrdered: it is not replicated, so the next leader makes it for its clients.
func TestEphemeralChannelStaysOrdered(t *testing.T) {
	for _, next := range []ident.Node{"n2", "n3"} { // to this broker, to another
		inBubble(t, func(t *testing.T, w *world) {
			p := w.topic("orders", "n1").Partition(0)
			s, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{
				Topic: "orders", Channel: "tail#ephemeral", Partition: -1, MsgTimeoutMS: 60_000, Ordered: true,
			})
			require.NoError(t, err)
			s.SetReady(10)
			w.tick(time.Second)
			w.lead(p, next)
			w.tick(time.Second)
			w.store(p, 5)
			got := w.consume(s, 10, 5, time.Second, func(api.Delivery) {})
			require.Equal(t, 1, got, "one at a time, from %s", next)
		})
	}
}

// TestPartitionThatIsNotThere is refused by its name, whatever the client asks of it.
func TestPartitionThatIsNotThere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1", "n2")
		gw := w.brokers["n1"].gw
		_, err := gw.Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "c", Partition: 2, MsgTimeoutMS: 60_000})
		require.ErrorIs(t, err, outcome.ErrPartitionNotFound)
		put := &answers{}
		gw.Publish("orders", 2, nil, draft("m"), put)
		require.ErrorIs(t, put.all()[0].Err, outcome.ErrPartitionNotFound)
	})
}

// TestSubscriptionsThatAreOrdered: the client asked for order, or the topic has it.
func TestSubscriptionsThatAreOrdered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("plain", "n1")
		lined := w.topic("lined", "n1")
		lined.Ordered = true
		w.mu.Lock()
		w.topics["lined"] = lined
		w.mu.Unlock()
		for topic, byTopic := range map[string]bool{"plain": false, "lined": true} {
			for _, byClient := range []bool{false, true} {
				s, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{
					Topic: topic, Channel: fmt.Sprint("of-", byClient), Partition: -1, MsgTimeoutMS: 60_000, Ordered: byClient,
				})
				require.NoError(t, err)
				require.Equal(t, byTopic || byClient, s.Ordered(), "%s, %t", topic, byClient)
			}
		}
	})
}

// TestEphemeralChannelBecomesOrdered: one SUB_ORDERED is enough, whichever client came
// first, here or to the next leader.
func TestEphemeralChannelBecomesOrdered(t *testing.T) {
	for _, next := range []ident.Node{"", "n2", "n3"} { // the leader stays; to either's broker
		inBubble(t, func(t *testing.T, w *world) {
			p := w.topic("orders", "n1").Partition(0)
			subscribe := func(on ident.Node, ordered bool) api.Subscription {
				s, err := w.brokers[on].gw.Subscribe(t.Context(), api.SubscribeRequest{
					Topic: "orders", Channel: "tail#ephemeral", Partition: -1, MsgTimeoutMS: 60_000, Ordered: ordered,
				})
				require.NoError(t, err)
				return s
			}
			subscribe("n3", false) // it takes nothing
			s := subscribe("n2", true)
			s.SetReady(10)
			w.tick(time.Second)
			if next != "" {
				w.lead(p, next)
				w.tick(time.Second)
			}
			w.store(p, 5)
			got := w.consume(s, 10, 5, time.Second, func(api.Delivery) {})
			require.Equal(t, 1, got, "one at a time, from %s", next)
		})
	}
}

func TestLeaderChangesUnderASubscription(t *testing.T) {
	for _, next := range []ident.Node{"n2", "n3"} { // to this broker, to another
		t.Run(string(next), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				top := w.topic("orders", "n1")
				s := w.brokers["n2"].subscribe(t, "orders", 10)
				w.publish("n1", numbers(30)...)
				w.tick(time.Second)
				held := s.Pull(6, nil)
				require.Len(t, held, 6)
				require.NoError(t, s.Finish(held[0].ID))
				w.tick(time.Second)

				w.lead(top.Partition(0), "") // the leader dies
				w.kill("n1")
				require.Equal(t, 5, s.InFlight())
				require.NoError(t, s.Finish(held[1].ID), "kept for the next leader")
				require.NoError(t, s.Touch(held[2].ID))
				w.tick(500 * time.Millisecond)
				w.lead(top.Partition(0), next)
				w.tick(500 * time.Millisecond)
				require.Equal(t, 4, s.InFlight(), "what the client holds is its own")
				require.NoError(t, s.Finish(held[2].ID))

				seen := map[string]int{}
				w.consume(s, 10, 24, 5*time.Second, func(d api.Delivery) {
					seen[body(d)]++
					require.EqualValues(t, 1, d.Message.Attempts, "a change of leader is no attempt")
					require.NoError(t, s.Finish(d.ID))
				})
				for _, d := range held[3:] {
					require.NoError(t, s.Finish(d.ID))
				}
				w.tick(time.Second)
				require.Len(t, seen, 24)
				for _, d := range held {
					require.Zero(t, seen[body(d)], "%s was held and came again", body(d))
				}
				require.Empty(t, s.Refused())
				q, _ := w.brokers[next].Queue(top.Partition(0))
				st := q.Stats("ch", false).Channels[0]
				require.Zero(t, st.Depth)
				require.Zero(t, st.InFlightCount)
			})
		})
	}
}

func TestRequeueWithoutALeaderKeepsTheAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 1)
		w.publish("n1", "poison")
		for attempts := range uint16(3) {
			w.consume(s, 1, 1, time.Second, func(d api.Delivery) {
				require.EqualValues(t, attempts+1, d.Message.Attempts)
				if attempts == 2 {
					w.lead(top.Partition(0), "")
					w.tick(100 * time.Millisecond)
				}
				require.NoError(t, s.Requeue(d.ID, 0))
			})
		}
		w.lead(top.Partition(0), "n1")
		require.Equal(t, 1, w.consume(s, 1, 1, 5*time.Second, func(d api.Delivery) { require.EqualValues(t, 4, d.Message.Attempts) }))
	})
}

func TestLocalLeaderMovesAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n1"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(20)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(5, nil)
		require.Len(t, held, 5)
		w.lead(top.Partition(0), "n2") // a planned hand-over
		w.tick(100 * time.Millisecond)
		require.Equal(t, 5, s.InFlight())
		for _, d := range held {
			require.NoError(t, s.Finish(d.ID))
		}
		w.finishRest(t, s, 15)
	})
}

func TestBrokenLinkIsNotADisconnect(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", numbers(20)...)
		w.tick(100 * time.Millisecond)
		held := s.Pull(5, nil)
		w.setDown("n2", true)
		require.NoError(t, s.Finish(held[0].ID))
		w.tick(time.Second) // shorter than the reclaim time
		w.setDown("n2", false)
		w.tick(200 * time.Millisecond)
		for _, d := range held[1:] {
			require.NoError(t, s.Finish(d.ID))
		}
		w.finishRest(t, s, 15)
	})
}

func TestCutOffEdgeLosesItsDeliveriesInTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", "x")
		w.tick(100 * time.Millisecond)
		held := s.Pull(1, nil)
		require.Len(t, held, 1)
		w.setDown("n2", true)
		w.tick(3 * time.Second)
		other := w.brokers["n3"].subscribe(t, "orders", 1)
		require.Equal(t, 1, w.consume(other, 1, 1, time.Second, func(d api.Delivery) {
			require.NoError(t, other.Finish(d.ID))
		}))
		w.setDown("n2", false)
		w.tick(time.Second)
		require.ErrorIs(t, s.Finish(held[0].ID), outcome.ErrNotInFlight, "the leader has taken it back")
	})
}

func TestTimeoutIsHeardOverTheRelay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		s, err := w.brokers["n2"].gw.Subscribe(t.Context(), api.SubscribeRequest{
			Topic: "orders", Channel: "ch", Partition: -1, MsgTimeoutMS: 1000,
		})
		require.NoError(t, err)
		s.SetReady(1)
		w.publish("n1", "x")
		w.tick(100 * time.Millisecond)
		first := s.Pull(1, nil)
		require.Len(t, first, 1)
		w.tick(1100 * time.Millisecond)
		require.Zero(t, s.InFlight())
		again := s.Pull(1, nil)
		require.Len(t, again, 1)
		require.EqualValues(t, 2, again[0].Message.Attempts)
		require.NoError(t, s.Requeue(again[0].ID, 500))
		w.tick(400 * time.Millisecond)
		require.Empty(t, s.Pull(1, nil))
		w.tick(200 * time.Millisecond)
		require.Len(t, s.Pull(1, nil), 1)
	})
}

func TestLostDeliveriesComeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.tick(100 * time.Millisecond)
		pipe := w.pipe("n1", "n2")
		pipe.setLose(func(rpc.Frame) bool { return true })
		w.publish("n1", "x")
		w.tick(100 * time.Millisecond)
		require.Empty(t, s.Pull(1, nil))
		pipe.setLose(nil)
		w.brokers["n1"].gw.PeerDown("n2") // the broken connection is noticed on one side only
		require.Equal(t, 1, w.consume(s, 10, 1, 3*time.Second, func(api.Delivery) {}))
	})
}

func TestDeletedChannelClosesItsSubscriptions(t *testing.T) {
	for _, at := range []ident.Node{"n1", "n2"} {
		t.Run(string(at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				top := w.topic("orders", "n1")
				s := w.brokers[at].subscribe(t, "orders", 10)
				w.tick(100 * time.Millisecond)
				q, _ := w.brokers["n1"].Queue(top.Partition(0))
				require.NoError(t, q.DeleteChannel(t.Context(), "ch"))
				w.tick(300 * time.Millisecond)
				require.Eventually(t, func() bool {
					select {
					case <-s.Closed():
						return true
					default:
						return false
					}
				}, time.Second, 10*time.Millisecond)
			})
		})
	}
}

func TestCloseGivesBackAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		w.publish("n1", "x")
		for _, at := range []ident.Node{"n2", "n1", "n3"} {
			s := w.brokers[at].subscribe(t, "orders", 1)
			require.Equal(t, 1, w.consume(s, 1, 1, time.Second, func(api.Delivery) {}), at)
			s.Close(true)
			require.Zero(t, s.InFlight())
			require.Empty(t, s.Pull(1, nil))
		}
	})
}

func TestLeaderThatDoesNotServeYet(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		s := w.brokers["n2"].subscribe(t, "orders", 10)
		w.publish("n1", "x")
		w.tick(50 * time.Millisecond)
		w.brokers["n3"].electing.Store(true) // the metadata names it, its marker is not committed
		w.lead(top.Partition(0), "n3")
		w.tick(300 * time.Millisecond)
		require.Empty(t, s.Pull(1, nil))
		w.brokers["n3"].electing.Store(false)
		start := time.Now()
		require.Equal(t, 1, w.consume(s, 10, 1, time.Second, func(d api.Delivery) {
			require.NoError(t, s.Finish(d.ID))
		}))
		require.Less(t, time.Since(start), 400*time.Millisecond)
	})
}

// A message times out while the leader reads the log for the same stream (from a
// disk, say), and goes out again with the messages that were read.
func TestATimeoutDuringAPullDoesNotHideTheMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		p := top.Partition(0)
		s := w.brokers["n2"].subscribe(t, "orders", 3)
		w.publish("n1", "slow")
		w.tick(time.Second)
		require.Len(t, s.Pull(3, nil), 1) // and the client is stuck with it
		w.tick(57 * time.Second)
		q, _ := w.brokers["n1"].Queue(p)
		log := w.logs[p]
		log.mu.Lock()
		log.onRead = func() {
			time.Sleep(3 * time.Second)
			q.Expire(time.Now().UnixNano())
		}
		log.mu.Unlock()
		w.publish("n1", "next")
		w.tick(5 * time.Second)
		require.EqualValues(t, 1, q.Stats("ch", false).Channels[0].TimeoutCount)
		got := map[string]uint16{}
		for _, d := range s.Pull(3-s.InFlight(), nil) {
			got[body(d)] = d.Message.Attempts
			require.NoError(t, s.Finish(d.ID))
		}
		require.Equal(t, map[string]uint16{"next": 1, "slow": 2}, got)
		w.tick(time.Second)
		require.Zero(t, q.Stats("ch", false).Channels[0].InFlightCount)
	})
}
