package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench has the sessions of a fake broker.
type bench struct {
	*Sessions
	t        *testing.T
	cluster  *edgetest.Cluster
	attempts uint16 // of the first delivery of the last poll
}

func newBench(t *testing.T, o Options) *bench {
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	o.RequeueOnDisconnect = true
	s := New(o, cluster, nil)
	t.Cleanup(s.Stop)
	return &bench{Sessions: s, t: t, cluster: cluster}
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, o Options, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t, o)) })
}

type answered chan api.PutResult

func (a answered) Answer(r api.PutResult) { a <- r }

// put publishes messages to topic t.
func (b *bench) put(bodies ...string) {
	for _, body := range bodies {
		d := queue.NewDraft(len(body))
		require.NoError(b.t, d.AddMessage(queue.Message{Body: []byte(body)}))
		a := make(answered, 1)
		b.cluster.Publish("t", api.AnyPartition, nil, d.Draft(ident.RequestID{}), a)
		require.NoError(b.t, (<-a).Err)
	}
}

func request(name string) Request {
	return Request{Client: client{Host: "h", Name: name}, Topic: "t", Channel: "c", MsgTimeout: time.Minute, MaxInFlight: 100}
}

// poll returns the bodies and the receipts of one poll, which was answered.
func (b *bench) poll(r Request, most int, wait time.Duration) (bodies []string, receipts []Receipt) {
	b.t.Helper()
	batch, err := b.Poll(b.t.Context(), r, most, wait)
	require.NoError(b.t, err)
	for i, d := range batch.Deliveries {
		if i == 0 {
			b.attempts = d.Message.Attempts
		}
		bodies = append(bodies, string(d.Message.Body))
		receipts = append(receipts, batch.Receipt(i))
	}
	batch.Close(true)
	return bodies, receipts
}

func (b *bench) settle(verb api.Verb, list ...Receipt) []error {
	return b.Settle(b.t.Context(), "t", "c", api.Settlement{Verb: verb}, list)
}

func (b *bench) channel() api.ChannelStats { return b.cluster.Topics("t", "", false)[0].Channels[0] }

// TestReceiptsSettleTheDeliveries: a message that is finished does not come again, one that is requeued comes at once, one
// that is touched comes later than one that is forgotten.
func TestReceiptsSettleTheDeliveries(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		b.put("finish", "requeue", "touch", "forget")
		bodies, receipts := b.poll(request(""), 100, 0)
		require.Equal(t, []string{"finish", "requeue", "touch", "forget"}, bodies)
		require.Equal(t, []error{nil}, b.settle(api.VerbFinish, receipts[0]))
		require.Equal(t, []error{nil}, b.settle(api.VerbRequeue, receipts[1]))
		bodies, again := b.poll(request(""), 100, 0)
		require.Equal(t, []string{"requeue"}, bodies)
		require.Equal(t, uint16(2), b.attempts)
		require.Equal(t, []error{nil}, b.settle(api.VerbFinish, again[0]))
		time.Sleep(40 * time.Second)
		require.Equal(t, []error{nil}, b.settle(api.VerbTouch, receipts[2]))
		time.Sleep(30 * time.Second)
		bodies, _ = b.poll(request(""), 100, 0)
		require.Equal(t, []string{"forget"}, bodies, "after its timeout")
		require.Equal(t, []error{outcome.ErrNotInFlight, nil}, b.settle(api.VerbFinish, receipts[0], receipts[2]), "it was touched in time")
	})
}

// TestAPollWaits returns when a message comes, or nothing when the time is over.
func TestAPollWaits(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		began := time.Now()
		bodies, _ := b.poll(request(""), 1, 20*time.Second)
		require.Empty(t, bodies)
		require.Equal(t, 20*time.Second, time.Since(began))
		time.AfterFunc(5*time.Second, func() { b.put("m") })
		bodies, _ = b.poll(request(""), 2, 20*time.Second)
		require.Equal(t, []string{"m"}, bodies)
		require.Equal(t, 25*time.Second+gatherTime, time.Since(began))
	})
}

// TestPollsOfOneClientShareASession: each message goes to one of them, and /stats has one consumer.
func TestPollsOfOneClientShareASession(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		var polls sync.WaitGroup
		got := make(chan string, 2)
		for range 2 {
			polls.Go(func() {
				bodies, _ := b.poll(request(""), 1, time.Minute)
				got <- strings.Join(bodies, "+")
			})
		}
		synctest.Wait()
		require.Equal(t, 1, b.Count())
		b.put("one", "two")
		polls.Wait()
		require.ElementsMatch(t, []string{"one", "two"}, []string{<-got, <-got})
		b.poll(request("other"), 1, 0)
		require.Equal(t, 2, b.Count(), "a client with another name")
	})
}

// TestAClientDoesNotSettleTheDeliveryOfAnotherOne, also not with a receipt of the same message: the clients of one host share
// a session. Neither does an answer that could not be written.
func TestAClientDoesNotSettleTheDeliveryOfAnotherOne(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		b.put("m")
		unsent, err := b.Poll(t.Context(), request(""), 1, 0)
		require.NoError(t, err)
		first := unsent.Receipt(0)
		time.Sleep(request("").MsgTimeout / 2)
		b.poll(request(""), 1, 0) // the session lives on
		time.Sleep(request("").MsgTimeout/2 + time.Second)
		_, second := b.poll(request(""), 1, 0)
		require.Len(t, second, 1)
		require.Equal(t, 1, b.Count())
		require.Equal(t, first.Session, second[0].Session)
		for _, verb := range []api.Verb{api.VerbFinish, api.VerbRequeue, api.VerbTouch} {
			require.Equal(t, []error{outcome.ErrNotOwner}, b.settle(verb, first), verb)
		}
		unsent.Close(false)
		require.Equal(t, 1, b.channel().InFlightCount, "it stays with the second client")
		require.Equal(t, []error{nil}, b.settle(api.VerbFinish, second[0]))
	})
}

// TestSessionsEndAfterTheirMessageTimeout, and #ephemeral channels with them.
func TestSessionsEndAfterTheirMessageTimeout(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		r := request("")
		r.Channel = "c#ephemeral"
		b.poll(r, 1, 0)
		time.Sleep(r.MsgTimeout - time.Second)
		require.Equal(t, 1, b.Count())
		require.Len(t, b.cluster.Topics("t", "", false)[0].Channels, 1)
		b.poll(r, 1, 0)
		time.Sleep(r.MsgTimeout - time.Second)
		require.Equal(t, 1, b.Count(), "a poll restarts the time")
		time.Sleep(2 * time.Second)
		require.Zero(t, b.Count())
		require.Empty(t, b.cluster.Topics("t", "", false)[0].Channels)
	})
}

// TestAPollAtTheEndOfASession gets its messages: from the session that ends, or from a new one.
func TestAPollAtTheEndOfASession(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		for range 2000 {
			time.AfterFunc(time.Millisecond, func() { b.put("m") })
			batch, err := b.Poll(t.Context(), request(""), 1, time.Second)
			require.NoError(t, err, "the channel is there")
			require.Len(t, batch.Deliveries, 1)
			require.NoError(t, b.settle(api.VerbFinish, batch.Receipt(0))[0])
			batch.Close(true)
			time.Sleep(request("").MsgTimeout) // the timer of the session and the next poll run at the same time
		}
	})
}

// TestMessagesInFlightSurviveTheirSession until their timeout: a receipt of an ended session goes to the leader.
func TestMessagesInFlightSurviveTheirSession(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		leader := &fakeReceipts{}
		b.receipts = leader
		_, receipts := b.pollOne("m")
		x := b.find(receipts[0].Session, "t", "c")
		x.finish(func(sub api.Subscription) { sub.Close(false) })
		require.Equal(t, []error{nil}, b.settle(api.VerbFinish, receipts[0]))
		require.Equal(t, []api.Receipt{receipts[0].Receipt}, leader.list)
	})
}

// pollOne publishes a message and takes it.
func (b *bench) pollOne(body string) ([]string, []Receipt) {
	b.poll(request(""), 1, 0)
	b.put(body)
	return b.poll(request(""), 1, time.Second)
}

// fakeReceipts settles everything, or refuses everything.
type fakeReceipts struct {
	list []api.Receipt
	err  error
}

func (f *fakeReceipts) Settle(_ context.Context, _, _ string, _ api.Settlement, list []api.Receipt) []error {
	f.list = append(f.list, list...)
	errs := make([]error, len(list))
	for i := range errs {
		errs[i] = f.err
	}
	return errs
}

// TestReceiptsOfOtherBrokersGoToTheLeaders: one that names no session here, one that names another channel's, and one whose
// message is not in flight to its session. One that is in flight to another client is refused here.
func TestReceiptsOfOtherBrokersGoToTheLeaders(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		leader := &fakeReceipts{err: outcome.ErrNotOwner}
		b.receipts = leader
		_, receipts := b.pollOne("m")
		mine := receipts[0]
		foreign, missing := mine, mine
		foreign.Session++
		missing.ID[0] = 'f'
		require.Equal(t, []error{outcome.ErrNotOwner, outcome.ErrNotOwner, nil}, b.settle(api.VerbTouch, foreign, missing, mine))
		require.Equal(t, []api.Receipt{foreign.Receipt, missing.Receipt}, leader.list)
		errs := b.Settle(t.Context(), "t", "another", api.Settlement{Verb: api.VerbTouch}, []Receipt{mine})
		require.Equal(t, []error{outcome.ErrNotOwner}, errs)
		require.Len(t, leader.list, 3)
	})
}

// TestMaxInFlight: a session takes at most that many messages until one is finished.
func TestMaxInFlight(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		r := request("")
		r.MaxInFlight = 2
		b.put("1", "2", "3")
		bodies, receipts := b.poll(r, 10, 0)
		require.Equal(t, []string{"1", "2"}, bodies)
		bodies, _ = b.poll(r, 10, time.Second)
		require.Empty(t, bodies)
		time.AfterFunc(time.Second, func() { b.settle(api.VerbFinish, receipts[0]) })
		began := time.Now()
		bodies, _ = b.poll(r, 10, time.Minute)
		require.Equal(t, []string{"3"}, bodies)
		require.Less(t, time.Since(began), 2*time.Second)
	})
}

// spy is a subscription that records its credit.
type spy struct {
	api.Subscription
	mu      sync.Mutex
	granted []int
}

func (s *spy) SetReady(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted = append(s.granted, n)
}

// credits are the credits that were granted, in order.
func (s *spy) credits() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.granted)
}

// spies makes every subscription a spy.
type spies struct {
	api.Subscribers
	last *spy
}

func (s *spies) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	sub, err := s.Subscribers.Subscribe(ctx, r)
	s.last = &spy{Subscription: sub}
	return s.last, err
}

// TestCreditEndsWithThePolls is invariant 1.
func TestCreditEndsWithThePolls(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		all := &spies{Subscribers: b.cluster}
		b.subscribers = all
		b.put("1", "2")
		b.poll(request(""), 1, 0)
		require.Equal(t, []int{1}, all.last.credits())
		b.poll(request(""), 10, 0)
		require.Equal(t, []int{1, 11}, all.last.credits(), "as many beyond the one in flight")
		time.Sleep(lingerTime)
		synctest.Wait()
		require.Equal(t, []int{1, 11, 0}, all.last.credits())
		b.poll(request(""), 10, time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 11, 0, 12, 0}, all.last.credits())
	})
}

// TestAClientThatLeaves gets no message: it waits for another one.
func TestAClientThatLeaves(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := b.Poll(ctx, request(""), 1, time.Minute)
			done <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		b.put("m")
		bodies, _ := b.poll(request(""), 1, 0)
		require.Equal(t, []string{"m"}, bodies)
		require.Equal(t, uint16(1), b.attempts)
	})
}

// TestAnAnswerThatIsNotSent is invariant 3: its messages come again at once.
func TestAnAnswerThatIsNotSent(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		b.put("m")
		batch, err := b.Poll(t.Context(), request(""), 1, 0)
		require.NoError(t, err)
		batch.Close(false)
		bodies, _ := b.poll(request(""), 1, 0)
		require.Equal(t, []string{"m"}, bodies)
		require.Equal(t, uint16(2), b.attempts)
		b.o.RequeueOnDisconnect = false
		batch, err = b.Poll(t.Context(), request("other"), 1, 0)
		require.NoError(t, err)
		batch.Close(false)
		require.Equal(t, 1, b.channel().InFlightCount, "it waits for its timeout")
	})
}

// TestStopEndsThePolls is invariant 5: the messages in flight go back, and their deliveries do not count.
func TestStopEndsThePolls(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		b.pollOne("m")
		done := make(chan error)
		go func() {
			_, err := b.Poll(t.Context(), request(""), 1, time.Minute)
			done <- err
		}()
		go func() {
			done <- b.Stream(t.Context(), request(""), time.Minute, func(*Batch) error { return nil })
		}()
		synctest.Wait()
		require.Equal(t, 2, b.Count())
		b.Stop()
		require.ErrorIs(t, <-done, outcome.ErrExiting)
		require.ErrorIs(t, <-done, outcome.ErrExiting)
		require.Zero(t, b.Count())
		_, err := b.Poll(t.Context(), request(""), 1, 0)
		require.ErrorIs(t, err, outcome.ErrExiting)
		sub, err := b.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "c", MsgTimeoutMS: 1000})
		require.NoError(t, err)
		list := sub.Pull(10, nil)
		require.Len(t, list, 1)
		require.Equal(t, uint16(1), list[0].Message.Attempts)
	})
}

// TestLimitOfAUser: a user from several addresses does not take all sessions, and a client that has not
// logged in counts for its address alone.
func TestLimitOfAUser(t *testing.T) {
	inBubble(t, Options{MaxSessions: 9, MaxPerClient: 2}, func(t *testing.T, b *bench) {
		try := func(host, identity string, authed bool) error {
			r := request("")
			r.Client.Host, r.Client.Network, r.Client.Identity, r.About.Authed, r.MsgTimeout = host, host, identity, authed, time.Second
			_, err := b.Poll(t.Context(), r, 1, 0)
			return err
		}
		require.NoError(t, try("h", "shop", true))
		require.NoError(t, try("i", "shop", true))
		require.ErrorIs(t, try("j", "shop", true), outcome.ErrTooManyClients)
		require.NoError(t, try("j", "other", true))
		for _, host := range []string{"k", "l", "m"} {
			require.NoError(t, try(host, "anonymous", false))
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, try("j", "shop", true))
		require.Len(t, b.mu.clients, 2)
	})
}

// TestLimits bounds the sessions of all, and of one address.
func TestLimits(t *testing.T) {
	inBubble(t, Options{MaxSessions: 3, MaxPerClient: 2}, func(t *testing.T, b *bench) {
		try := func(host, name string) error {
			r := request(name)
			r.Client.Host, r.Client.Network, r.MsgTimeout = host, host, time.Second
			_, err := b.Poll(t.Context(), r, 1, 0)
			return err
		}
		require.NoError(t, try("h", "1"))
		require.NoError(t, try("h", "2"))
		require.ErrorIs(t, try("h", "3"), outcome.ErrTooManyClients)
		require.NoError(t, try("h", "1"))
		require.NoError(t, try("i", "1"))
		require.ErrorIs(t, try("i", "2"), outcome.ErrTooManyClients, "three in all")
		time.Sleep(2 * time.Second)
		require.NoError(t, try("h", "3"))
		require.Len(t, b.mu.clients, 1)
	})
}

// TestADeletedChannel ends a poll that waits; the next one makes the channel again, as a connection does that subscribes again.
func TestADeletedChannel(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		time.AfterFunc(time.Second, func() {
			_ = b.cluster.Do(t.Context(), api.DeleteChannel{Topic: "t", Channel: "c"})
		})
		_, err := b.Poll(t.Context(), request(""), 1, time.Minute)
		require.ErrorIs(t, err, outcome.ErrChannelNotFound)
		b.put("m")
		bodies, _ := b.poll(request(""), 1, time.Second)
		require.Equal(t, []string{"m"}, bodies)
		require.NoError(t, b.cluster.Do(t.Context(), api.DeleteChannel{Topic: "t", Channel: "c"}))
		bodies, _ = b.poll(request(""), 1, 0)
		require.Empty(t, bodies)
		require.Equal(t, 1, b.Count())
	})
}

// TestMemoryOfAnswers: a user whose unread answers hold its share gets no further messages, and the reason; other users still do.
func TestMemoryOfAnswers(t *testing.T) {
	memory := limits.New(3 << 20)
	inBubble(t, Options{Memory: memory}, func(t *testing.T, b *bench) {
		large := strings.Repeat("x", 600<<10)
		b.put(large, large, large)
		of := func(user, name string) Request {
			r := request(name)
			r.Client.Identity, r.About.Authed = user, true
			return r
		}
		var unread []*Batch
		for i := range 2 {
			batch, err := b.Poll(t.Context(), of("greedy", fmt.Sprint(i)), 1, 0)
			if err == nil {
				unread = append(unread, batch)
			}
		}
		require.Len(t, unread, 1)
		_, err := b.Poll(t.Context(), of("greedy", "again"), 1, 0)
		require.ErrorIs(t, err, ErrBusy)
		require.Equal(t, 1, b.channel().InFlightCount, "the refused poll has taken none")
		bodies, _ := b.poll(of("other", ""), 1, 0)
		require.Len(t, bodies, 1)
		unread[0].Close(true)
		bodies, _ = b.poll(of("greedy", "again"), 1, 0)
		require.Len(t, bodies, 1)
		require.Zero(t, memory.Used())
	})
}

// TestUnreadStreams: the streams of one user that nobody reads leave room for the consumers of another.
func TestUnreadStreams(t *testing.T) {
	memory := limits.New(8 << 20)
	inBubble(t, Options{Memory: memory}, func(t *testing.T, b *bench) {
		for range 40 {
			b.put(strings.Repeat("x", 200<<10))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		for i := range 30 {
			r := request(fmt.Sprint(i))
			r.Client.Network = "10.0.0.1"
			streams.Go(func() {
				_ = b.Stream(ctx, r, time.Minute, func(batch *Batch) error {
					if batch != nil {
						<-ctx.Done() // the client does not read
					}
					return nil
				})
			})
		}
		synctest.Wait()
		require.LessOrEqual(t, memory.Used(), int64(8<<20/3))
		other := request("other")
		other.Client.Network = "10.0.0.2"
		bodies, _ := b.poll(other, 3, 0)
		require.Len(t, bodies, 3)
		cancel()
		streams.Wait()
		require.Zero(t, memory.Used())
	})
}

// TestLargeMessages: an answer ends at answerBytes.
func TestLargeMessages(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		large := strings.Repeat("x", answerBytes)
		b.put(large, large)
		b.subscribers = &ones{b.cluster}
		for range 2 {
			bodies, _ := b.poll(request(""), 10, 0)
			require.Len(t, bodies, 1)
		}
	})
}

// ones has subscriptions that give one message at a time, as the broker's do with large ones.
type ones struct{ api.Subscribers }

func (s *ones) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	sub, err := s.Subscribers.Subscribe(ctx, r)
	return single{sub}, err
}

type single struct{ api.Subscription }

func (s single) Pull(credit int, dst []api.Delivery) []api.Delivery {
	return s.Subscription.Pull(min(credit, 1), dst)
}

// TestAStream sends messages as they come, with at most MaxInFlight in flight, and a sign of life.
func TestAStream(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		r := request("")
		r.MaxInFlight = 1
		var events []string
		var list []Receipt
		gone := errors.New("gone")
		done := make(chan error)
		go func() {
			done <- b.Stream(t.Context(), r, 10*time.Second, func(x *Batch) error {
				if x == nil {
					events = append(events, fmt.Sprint(len(list)))
					return nil
				}
				for i, d := range x.Deliveries {
					events = append(events, string(d.Message.Body))
					list = append(list, x.Receipt(i))
				}
				if len(list) == 3 {
					return gone
				}
				return nil
			})
		}()
		synctest.Wait()
		b.put("a", "b", "c")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"0", "a", "1"}, events)
		b.settle(api.VerbFinish, list[0])
		synctest.Wait()
		require.Equal(t, "b", events[len(events)-1])
		b.settle(api.VerbFinish, list[1])
		require.ErrorIs(t, <-done, gone)
		require.Zero(t, b.Count())
		bodies, _ := b.poll(request(""), 10, 0)
		require.Equal(t, []string{"c"}, bodies, "requeued when the client had left")
		require.Equal(t, uint16(2), b.attempts)
	})
}

// TestStats: a session is a client of its channel.
func TestStats(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		r := request("")
		r.About = api.ClientStats{ClientID: "me", Version: "HTTP"}
		b.put("1", "2")
		_, receipts := b.poll(r, 2, 0)
		b.settle(api.VerbFinish, receipts[0])
		c := b.find(receipts[0].Session, "t", "c").stats()
		require.Equal(t, api.ClientStats{
			ClientID: "me", Version: "HTTP", State: 3, ReadyCount: 2, InFlightCount: 1, MessageCount: 2, FinishCount: 1, ConnectTime: c.ConnectTime,
		}, c)
	})
}

// TestConsumersOfAChannel: polls and streams are listed with the message that they hold longest, for how long, and which
// attempt it is.
func TestConsumersOfAChannel(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bench) {
		require.Empty(t, b.Consumers("t", "c"))
		b.put("a")
		_, receipts := b.poll(request("worker"), 1, 0)
		require.Equal(t, []error{nil}, b.settle(api.VerbRequeue, receipts[0]))
		_, receipts = b.poll(request("worker"), 1, 0)
		time.Sleep(3 * time.Second)
		b.put("b")
		_, more := b.poll(request("worker"), 1, 0)
		time.Sleep(2 * time.Second)
		list := b.Consumers("t", "c")
		require.Len(t, list, 1)
		require.EqualValues(t, 2, list[0].InFlightCount)
		require.Equal(t, &api.HeldMessage{ID: receipts[0].ID, Attempts: 2, For: 5 * time.Second}, list[0].Oldest)
		require.Equal(t, 2*time.Second, time.Since(list[0].LastActivity), "since its last poll")
		require.Equal(t, []error{nil}, b.settle(api.VerbTouch, receipts[0]))
		list = b.Consumers("t", "c")
		require.Zero(t, time.Since(list[0].LastActivity), "it has sent a receipt")
		require.Equal(t, 5*time.Second, list[0].Oldest.For, "a touch does not change since when")
		require.Equal(t, []error{nil}, b.settle(api.VerbFinish, receipts[0]))
		require.Equal(t, &api.HeldMessage{ID: more[0].ID, Attempts: 1, For: 2 * time.Second}, b.Consumers("t", "c")[0].Oldest)
		require.Equal(t, []error{nil}, b.settle(api.VerbFinish, more[0]))
		require.Nil(t, b.Consumers("t", "c")[0].Oldest)

		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- b.Stream(ctx, request("stream"), time.Minute, func(*Batch) error { return nil })
		}()
		synctest.Wait()
		require.Len(t, b.Consumers("t", "c"), 2, "a stream is a consumer, too")
		require.Empty(t, b.Consumers("t", "other"))
		leave()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Len(t, b.Consumers("t", "c"), 1)
	})
}

func TestReceiptText(t *testing.T) {
	r := Receipt{Receipt: api.Receipt{ID: api.MessageID([]byte("0123456789abcdef")), Number: 1<<64 - 1, Epoch: 1<<64 - 1}, Session: 1<<64 - 1}
	require.Equal(t, "0123456789abcdef-ffffffffffffffff-ffffffffffffffff-ffffffffffffffff", r.String())
	require.Len(t, r.String(), maxReceipt)
	back, err := ParseReceipt(r.String())
	require.NoError(t, err)
	require.Equal(t, r, back)
	for _, text := range []string{
		"", "x", "0123456789abcdef-1-1", "0123456789abcdef-1-1-1-1", "0123456789abcde-1-1-1", "0123456789abcdef-10000000000000000-1-1", "0123456789abcdef-1-1-g",
		"0123456789abcdef-01-1-1", "0123456789abcdef-1-1-A", "0123456789abcdef-+1-1-1", "0123456789abcdef-1-1-" + strings.Repeat("0", 100) + "1",
	} {
		_, err := ParseReceipt(text)
		require.ErrorIs(t, err, errReceipt, text)
	}
}
