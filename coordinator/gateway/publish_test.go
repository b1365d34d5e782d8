package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%04d", i)
	}
	return out
}

func requireOK(t *testing.T, a *answers, n int) {
	t.Helper()
	all := a.all()
	require.Len(t, all, n)
	for _, r := range all {
		require.NoError(t, r.Err)
	}
}

func TestPutOnTheLeaderAndOnAnotherBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		for _, name := range []ident.Node{"n1", "n2"} {
			a := &answers{}
			w.brokers[name].put(a, "orders", "one", "two")
			synctest.Wait()
			requireOK(t, a, 1)
		}
		require.Equal(t, []string{"one", "two", "one", "two"}, w.bodies(top.Partition(0)))
		a := w.publish("n3", "x")
		synctest.Wait()
		require.Equal(t, api.MessageIDOf(top.Partition(0), 4), a.all()[0].ID)
	})
}

func TestPutsOfOneConnectionKeepTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		a := &answers{}
		want := numbers(5000)
		for _, body := range want {
			w.brokers["n2"].put(a, "orders", body)
		}
		time.Sleep(time.Second)
		requireOK(t, a, len(want))
		require.Equal(t, want, w.bodies(top.Partition(0)))
		require.Less(t, w.pipe("n2", "n1").sent, len(want), "frames carry several puts")
	})
}

func TestChangeOfLeaderDuringPuts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		a := &answers{}
		// The first leader commits its puts, but its answers are lost.
		w.pipe("n1", "n2").setLose(func(rpc.Frame) bool { return true })
		for _, body := range numbers(100) {
			w.brokers["n2"].put(a, "orders", body)
		}
		synctest.Wait()
		require.Empty(t, a.all())
		w.lead(top.Partition(0), "")
		w.kill("n1")
		time.Sleep(time.Second)
		for _, body := range numbers(200)[100:] {
			w.brokers["n2"].put(a, "orders", body)
		}
		require.Empty(t, a.all(), "held while there is no leader")
		w.lead(top.Partition(0), "n3")
		synctest.Wait()
		requireOK(t, a, 200)
		require.Equal(t, numbers(200), w.bodies(top.Partition(0)), "nothing twice, nothing out of order")
	})
}

func TestChangeOfLeaderToThisBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		a := &answers{}
		w.pipe("n2", "n1").setLose(func(rpc.Frame) bool { return true })
		w.brokers["n2"].put(a, "orders", "x")
		synctest.Wait()
		w.lead(top.Partition(0), "n2") // n1 is up and deposed
		synctest.Wait()
		requireOK(t, a, 1)
	})
}

func TestLostAnswerIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		lost := 0
		w.pipe("n1", "n2").setLose(func(rpc.Frame) bool { lost++; return lost == 1 })
		a := w.publish("n2", "x")
		time.Sleep(3 * time.Second)
		requireOK(t, a, 1)
		require.Equal(t, []string{"x"}, w.bodies(top.Partition(0)))
	})
}

func TestLocalRetrySealsItsOwnBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		var rooms []*byte
		w.brokers["n1"].judge = func(n int, d queue.Draft) (outcome.Outcome, bool) {
			rooms = append(rooms, &d.Bytes[0])
			if n == 0 {
				d.Seal(ident.Position{}, 7, 0, 0) // written, then its fate is not known
				return outcome.InDoubt, true
			}
			return 0, true
		}
		a := w.publish("n1", "x")
		time.Sleep(time.Second)
		requireOK(t, a, 1)
		require.Len(t, rooms, 2)
		require.NotSame(t, rooms[0], rooms[1])
		require.Equal(t, []string{"x"}, w.bodies(top.Partition(0)))
	})
}

func TestAnswersToAProducer(t *testing.T) {
	always := func(o outcome.Outcome) func(int, queue.Draft) (outcome.Outcome, bool) {
		return func(int, queue.Draft) (outcome.Outcome, bool) { return o, true }
	}
	for _, c := range []struct {
		name  string
		judge func(int, queue.Draft) (outcome.Outcome, bool)
		err   error
		after time.Duration
		count string // of /metrics
	}{
		{"committed", always(0), nil, 0, "ok"},
		{"rolled back", always(outcome.RolledBack), outcome.ErrRolledBack, 0, "rolled_back"},
		{"not enough", always(outcome.NotEnoughReplicas), outcome.ErrNotEnough, 3 * time.Second, "not_enough_in_sync"},
		{"topic full", always(outcome.TopicFull), outcome.ErrTopicFull, 0, "topic_full"},
		{"disk full", always(outcome.DiskFull), outcome.ErrDiskFull, 0, "disk_full"},
		{"not leader", always(outcome.NotLeader), outcome.ErrNoLeader, 9 * time.Second, "no_leader"},
		{"in doubt", always(outcome.InDoubt), outcome.ErrInDoubt, 9 * time.Second, "in_doubt"},
		{"doubt, then rolled back", func(n int, _ queue.Draft) (outcome.Outcome, bool) {
			return []outcome.Outcome{outcome.InDoubt, outcome.RolledBack}[min(n, 1)], true
		}, outcome.ErrInDoubt, 9 * time.Second, "in_doubt"},
		{"silence", func(int, queue.Draft) (outcome.Outcome, bool) { return outcome.InDoubt, false }, outcome.ErrInDoubt, 9 * time.Second, "in_doubt"},
	} {
		for _, at := range []ident.Node{"n1", "n2"} {
			t.Run(fmt.Sprintf("%s/%s", c.name, at), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					w.topic("orders", "n1")
					w.brokers["n1"].judge = c.judge
					a := &answers{}
					start := time.Now()
					w.brokers[at].put(a, "orders", "x")
					time.Sleep(20 * time.Second)
					require.Len(t, a.all(), 1, "exactly one answer")
					require.ErrorIs(t, a.all()[0].Err, c.err)
					took := a.at[0].Sub(start)
					require.GreaterOrEqual(t, took, c.after)
					require.LessOrEqual(t, took, c.after+200*time.Millisecond)
					require.True(t, w.brokers[at].told(c.count), c.count)
				})
			})
		}
	}
}

func TestNoLeaderAtAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		w.lead(top.Partition(0), "")
		a := w.publish("n2", "x")
		time.Sleep(8900 * time.Millisecond)
		require.Empty(t, a.all())
		time.Sleep(200 * time.Millisecond)
		require.ErrorIs(t, a.all()[0].Err, outcome.ErrNoLeader)
	})
}

// TestPutsOfADeletedTopic: a put that waits while its topic is deleted is answered at once. If one of
// its attempts has no answer yet, the next time to send it again ends the wait. The text begins as the row in
// docs/reference/errors.md: the Go client would repeat a put with any other "not stored", and create the topic again.
func TestPutsOfADeletedTopic(t *testing.T) {
	for _, c := range []struct {
		name   string
		silent bool // the leader takes the put and does not answer
		err    error
		text   string
		after  time.Duration
	}{
		{"no leader", false, outcome.ErrTopicNotFound, "topic not found: topic deleted, not stored", 0},
		{"in doubt", true, outcome.ErrInDoubt, outcome.ErrInDoubt.Error(), 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				top := w.topic("orders", "n1")
				w.brokers["n1"].judge = func(int, queue.Draft) (outcome.Outcome, bool) { return outcome.InDoubt, false }
				if !c.silent {
					w.lead(top.Partition(0), "")
				}
				start := time.Now()
				a := w.publish("n2", "x")
				time.Sleep(time.Second)
				require.Empty(t, a.all())
				w.mu.Lock()
				delete(w.topics, "orders")
				w.mu.Unlock()
				w.tell()
				time.Sleep(5 * time.Second)
				require.Len(t, a.all(), 1)
				require.ErrorIs(t, a.all()[0].Err, c.err)
				require.EqualError(t, a.all()[0].Err, c.text)
				require.LessOrEqual(t, a.at[0].Sub(start), max(c.after, time.Second)+200*time.Millisecond)
				late := w.publish("n2", "y")
				synctest.Wait()
				require.EqualError(t, late.all()[0].Err, "topic not found: topic deleted, not stored", "deleted after Admit")
			})
		})
	}
}

func TestHintOfAPeerIsFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		g := w.brokers["n2"].gw
		g.queueOf("orders", top.Partition(0)).setHint(Leadership{Node: "n3", Incarnation: 102, Epoch: 99})
		w.brokers["n3"].judge = func(_ int, d queue.Draft) (outcome.Outcome, bool) {
			return w.commit(top.Partition(0), d).Outcome, true
		}
		a := w.publish("n2", "x")
		synctest.Wait()
		requireOK(t, a, 1)
		require.Zero(t, w.pipe("n2", "n1").sent)
	})
}

func TestOnePutGoesAheadWhenTheLeaderIsUnwilling(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		var unwilling atomic.Bool
		unwilling.Store(true)
		w.brokers["n1"].judge = func(int, queue.Draft) (outcome.Outcome, bool) {
			if unwilling.Load() {
				return outcome.NotLeader, true
			}
			return 0, true
		}
		a := &answers{}
		for _, body := range numbers(100) {
			w.brokers["n2"].put(a, "orders", body)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Less(t, w.brokers["n1"].proposed(), 150, "not all of them again and again")
		unwilling.Store(false)
		time.Sleep(200 * time.Millisecond)
		requireOK(t, a, 100)
	})
}

func TestCloseAnswersEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "n1", "n2", "n3")
		top := w.topic("orders", "n1")
		w.pipe("n1", "n2").setLose(func(rpc.Frame) bool { return true })
		sent, held := &answers{}, &answers{}
		w.brokers["n2"].put(sent, "orders", "x")
		synctest.Wait()
		w.lead(top.Partition(0), "")
		other := w.topic("other", "n1")
		w.lead(other.Partition(0), "")
		w.brokers["n2"].put(held, "other", "y")
		w.close()
		require.ErrorIs(t, sent.all()[0].Err, outcome.ErrInDoubt)
		require.ErrorIs(t, held.all()[0].Err, outcome.ErrExiting)
		late := &answers{}
		w.brokers["n2"].put(late, "orders", "z")
		require.ErrorIs(t, late.all()[0].Err, outcome.ErrExiting)
	})
}

func TestPartitionOfAPut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1", "n2", "n1", "n3")
		g := w.brokers["n2"].gw
		for range 8 {
			require.Equal(t, top.Partition(1), g.choose(top, nil, &queue.Draft{}), "one that is led here")
		}
		seen := map[ident.Partition]int{}
		for range 400 {
			seen[w.brokers["n1"].gw.choose(top, nil, &queue.Draft{})]++
		}
		require.Len(t, seen, 2)
		keyed := g.choose(top, []byte("customer-7"), &queue.Draft{})
		require.Equal(t, keyed, w.brokers["n3"].gw.choose(top, []byte("customer-7"), &queue.Draft{}), "the same on every broker")
		require.Equal(t, uint16(fnv64("customer-7")%4), keyed.Number)
	})
}

// fnv64 is FNV-1a written out: the partition of a key must never change.
func fnv64(s string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(s) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func TestAdmitWaitsForRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		w.lead(top.Partition(0), "")
		g := w.brokers["n1"].gw
		g.budget.limit = 1000
		a := &answers{}
		w.brokers["n1"].put(a, "orders", strings.Repeat("x", 900))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Admit(ctx, "orders", 100), context.DeadlineExceeded)
		admitted := make(chan error, 2)
		for range 2 {
			go func() { admitted <- g.Admit(t.Context(), "orders", 600) }()
		}
		synctest.Wait()
		require.Empty(t, admitted)
		w.lead(top.Partition(0), "n1")
		time.Sleep(300 * time.Millisecond)
		require.Len(t, admitted, 2, "also the second, though the first never published")
		requireOK(t, a, 1)
	})
}

func TestPublishRefusesAboveTwiceTheLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		w.lead(top.Partition(0), "")
		w.brokers["n1"].gw.budget.limit = 1000
		a := &answers{}
		for range 3 {
			w.brokers["n1"].put(a, "orders", strings.Repeat("x", 900))
		}
		require.Len(t, a.all(), 1)
		require.ErrorIs(t, a.all()[0].Err, outcome.ErrBusy)
	})
}

func TestAdmitCreatesTheTopicOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		require.NoError(t, w.brokers["n2"].gw.Admit(t.Context(), "new", 10))
		a := &answers{}
		w.brokers["n1"].put(a, "new", "x")
		synctest.Wait()
		requireOK(t, a, 1)
	})
}

func TestLostAnswerAmongManyPuts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		lost := 0
		w.pipe("n1", "n2").setLose(func(rpc.Frame) bool { lost++; return lost == 1 })
		a := w.publish("n2", "first")
		synctest.Wait()
		for _, m := range numbers(10_000) {
			w.brokers["n2"].put(a, "orders", m)
			synctest.Wait()
		}
		require.Less(t, len(a.all()), 4096, "not so far ahead that the leader forgets the first")
		time.Sleep(3 * time.Second)
		requireOK(t, a, 10_001)
		require.Equal(t, append([]string{"first"}, numbers(10_000)...), w.bodies(top.Partition(0)))
	})
}

func TestUnansweredForwardIsADoubt(t *testing.T) {
	for name, after := range map[string]func(w *world, p ident.Partition){
		"the leader dies":     func(w *world, p ident.Partition) { w.lead(p, ""); w.kill("n1") },
		"the peer goes down":  func(w *world, _ ident.Partition) { w.setDown("n1", true) },
		"the leader is mute":  func(w *world, p ident.Partition) { w.pipe("n2", "n1").setLose(func(rpc.Frame) bool { return true }) },
		"nobody else may say": func(w *world, p ident.Partition) { w.lead(p, "n3") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				top := w.topic("orders", "n1")
				w.brokers["n1"].judge = func(int, queue.Draft) (outcome.Outcome, bool) { return outcome.InDoubt, false }
				w.brokers["n3"].judge = func(int, queue.Draft) (outcome.Outcome, bool) { return outcome.RolledBack, true }
				a := w.publish("n2", "x")
				synctest.Wait()
				after(w, top.Partition(0))
				time.Sleep(10 * time.Second)
				require.Len(t, a.all(), 1)
				require.ErrorIs(t, a.all()[0].Err, outcome.ErrInDoubt)
			})
		})
	}
}
