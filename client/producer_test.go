package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var hello = Message{Body: []byte("hello")}

const (
	refusedText = "E_PUB_FAILED PUB failed no leader, not stored"
	doubtText   = "E_PUB_FAILED PUB failed in doubt, may be stored"
)

func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		p := open(t, Options{}, f).Producer(ProducerOptions{})
		require.NoError(t, p.Publish(t.Context(), "t", hello))
		require.NoError(t, p.PublishAll(t.Context(), "t", Message{Body: []byte("a")}, Message{Body: []byte("b"), Headers: Headers{"x": "y"}}))
		require.NoError(t, p.Publish(t.Context(), "t", Message{Body: []byte("late"), Delay: time.Second}))
		require.Equal(t, []string{"hello", "a", "b", "late"}, f.bodies("t"))
		require.Equal(t, []string{"MPUB_EXT t"}, f.commands("MPUB"))
		require.Equal(t, []string{"DPUB t 1000"}, f.commands("DPUB"))
		require.ErrorIs(t, p.Publish(t.Context(), "t", Message{}), ErrInvalid)
	})
}

// TestSendKeepsTheOrder: a pipeline of puts is stored in the order of Send, at one connection.
func TestSendKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		p := open(t, Options{}, f).Producer(ProducerOptions{MaxInFlight: 100, Linger: time.Millisecond})
		var want []string
		var futures []*Future
		for i := range 5000 {
			want = append(want, fmt.Sprint(i))
			futures = append(futures, p.Send(t.Context(), "t", Message{Body: []byte(want[i])}))
		}
		for _, u := range futures {
			<-u.Done()
			require.NoError(t, u.Err())
		}
		require.Equal(t, want, f.bodies("t"))
	})
}

// TestARefusalIsRepeated: a definite refusal is repeated at another broker, and stored once.
func TestARefusalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := fake(t, always(refusedText)), fake(t)
		p := open(t, Options{}, bad, good).Producer(ProducerOptions{})
		for range 10 {
			require.NoError(t, p.Publish(t.Context(), "t", hello))
		}
		require.Len(t, good.bodies("t"), 10)
		require.Empty(t, bad.bodies("t"))
	})
}

// TestARefusalEndsWithTheBudget: the error is the class of the last refusal.
func TestARefusalEndsWithTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, always("E_PUB_FAILED PUB failed rate limited, not stored"))
		p := open(t, Options{}, f).Producer(ProducerOptions{RetryBudget: time.Second})
		err := p.Publish(t.Context(), "t", hello)
		require.ErrorIs(t, err, ErrNotStored)
		require.ErrorIs(t, err, ErrRateLimited)
		require.NotErrorIs(t, err, ErrInDoubt)
		require.Greater(t, f.puts(), 2)
	})
}

func TestRetryNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, always(refusedText))
		p := open(t, Options{}, f).Producer(ProducerOptions{Retry: RetryNever})
		require.ErrorIs(t, p.Publish(t.Context(), "t", hello), ErrNotStored)
		require.Equal(t, 1, f.puts())
	})
}

// TestDoubtIsReturned: a put that may be stored is not repeated: not after the broker's answer,
// and not after a connection that broke. It is never called "not stored".
func TestDoubtIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, answer := range map[string]string{"the broker says so": doubtText, "broken before": cut, "broken behind": store + cut} {
			f := fake(t, number(1, answer))
			p := open(t, Options{}, f).Producer(ProducerOptions{})
			err := p.Publish(t.Context(), "t", hello)
			require.ErrorIs(t, err, ErrInDoubt, name)
			require.NotErrorIs(t, err, ErrNotStored, name)
			require.Equal(t, 1, f.puts(), name)
			require.NoError(t, p.Publish(t.Context(), "t", hello), "the producer goes on")
		}
	})
}

// TestRetryInDoubt stores at least once.
func TestRetryInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, answer := range map[string]string{"the broker says so": doubtText, "broken before": cut, "broken behind": store + cut} {
			f := fake(t, number(1, answer))
			p := open(t, Options{}, f).Producer(ProducerOptions{Retry: RetryInDoubt})
			require.NoError(t, p.Publish(t.Context(), "t", hello), name)
			require.Equal(t, 2, f.puts(), name)
		}
	})
}

// TestDoubtIsRepeatedUnderAnID: the brokers recognise the repeat. A put of several is repeated if each has
// an ID, and none with RetryNever.
func TestDoubtIsRepeatedUnderAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named, unnamed := Message{Body: []byte("a"), Key: "k", ID: "order-1"}, Message{Body: []byte("b"), Key: "k"}
		for name, answer := range map[string]string{"the broker says so": doubtText, "broken before": cut, "broken behind": store + cut} {
			var ids []any
			f := fake(t, func(f *fakeBroker) {
				f.script = func(n int, p fakePut) string {
					ids = append(ids, p.header["##id"])
					if n == 1 {
						return answer
					}
					return ""
				}
			})
			p := open(t, Options{}, f).Producer(ProducerOptions{})
			require.NoError(t, p.Publish(t.Context(), "t", named), name)
			require.Equal(t, []any{"order-1", "order-1"}, ids, name)
		}
		f := fake(t, number(1, doubtText))
		p := open(t, Options{}, f).Producer(ProducerOptions{})
		require.ErrorIs(t, p.PublishAll(t.Context(), "t", named, unnamed), ErrInDoubt)
		f = fake(t, number(1, doubtText))
		p = open(t, Options{}, f).Producer(ProducerOptions{Retry: RetryNever})
		require.ErrorIs(t, p.Publish(t.Context(), "t", named), ErrInDoubt)
	})
}

// TestDoubtStays: a definite refusal of the second attempt says nothing of the first one.
func TestDoubtStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, func(f *fakeBroker) {
			f.script = func(n int, _ fakePut) string {
				if n == 1 {
					return store + cut
				}
				return refusedText
			}
		})
		p := open(t, Options{}, f).Producer(ProducerOptions{Retry: RetryInDoubt, RetryBudget: time.Second})
		err := p.Publish(t.Context(), "t", hello)
		require.ErrorIs(t, err, ErrInDoubt)
		require.NotErrorIs(t, err, ErrNotStored)
		require.Greater(t, f.puts(), 1)
	})
}

// TestPutsBehindAFatalErrorAreRepeated: the broker ran none of them.
func TestPutsBehindAFatalErrorAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, func(f *fakeBroker) {
			f.script = func(_ int, p fakePut) string {
				if p.body == "bad" {
					return "E_BAD_MESSAGE PUB message too big 9 > 8"
				}
				return ""
			}
		})
		p := open(t, Options{}, f).Producer(ProducerOptions{Linger: 20 * time.Millisecond})
		var futures []*Future
		var want []string
		for i := range 100 {
			body := fmt.Sprint(i)
			if i == 10 {
				body = "bad"
			} else {
				want = append(want, body)
			}
			futures = append(futures, p.Send(t.Context(), "t", Message{Body: []byte(body)}))
		}
		for i, u := range futures {
			if i == 10 {
				require.ErrorIs(t, u.Err(), ErrTooBig)
				require.ErrorIs(t, u.Err(), ErrNotStored)
				continue
			}
			require.NoError(t, u.Err())
		}
		require.Equal(t, want, f.bodies("t"), "each once")
	})
}

// TestPutsThatWereNeverSentAreRepeated: of the puts of a connection that breaks, only those
// that were passed to the socket are in doubt.
func TestPutsThatWereNeverSentAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, number(1, mute))
		p := open(t, Options{}, f).Producer(ProducerOptions{Linger: time.Hour, LingerBytes: 1000})
		first := p.Send(t.Context(), "t", Message{Body: make([]byte, 1000)}) // does not linger
		eventually(t, "the first put", func() bool { return f.puts() == 1 })
		second := p.Send(t.Context(), "t", Message{Body: make([]byte, 10)})
		require.Equal(t, 1, f.puts())
		f.drop()
		require.ErrorIs(t, first.Err(), ErrInDoubt)
		third := p.Send(t.Context(), "t", Message{Body: make([]byte, 1000)})
		require.NoError(t, second.Err())
		require.NoError(t, third.Err())
		require.Len(t, f.bodies("t"), 2)
	})
}

// TestTheContextEndsAPut: the error says whether it was sent.
func TestTheContextEndsAPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, always(mute))
		p := open(t, Options{}, f).Producer(ProducerOptions{MaxInFlight: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		sent := p.Send(ctx, "t", hello)
		full := p.Publish(ctx, "t", hello)
		require.ErrorIs(t, full, ErrNotStored)
		require.ErrorIs(t, full, context.DeadlineExceeded)
		require.ErrorIs(t, sent.Err(), ErrInDoubt)
		require.NotErrorIs(t, sent.Err(), ErrNotStored)
		require.ErrorIs(t, sent.Err(), context.DeadlineExceeded)

		f.stop()
		disconnected(t, p)
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := p.Publish(ctx, "t", hello)
		require.ErrorIs(t, err, ErrNotStored, "no broker could be reached")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestUnreachableBrokers: the budget bounds the wait for a broker.
func TestUnreachableBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		p := open(t, Options{}, f).Producer(ProducerOptions{RetryBudget: 300 * time.Millisecond})
		require.NoError(t, p.Publish(t.Context(), "t", hello))
		f.stop()
		disconnected(t, p)
		began := time.Now()
		err := p.Publish(t.Context(), "t", hello)
		require.ErrorIs(t, err, ErrNotStored)
		require.ErrorIs(t, err, ErrUnreachable)
		require.Less(t, time.Since(began), 5*time.Second)
		f.restart()
		eventually(t, "a put at the broker that is back", func() bool { return p.Publish(t.Context(), "t", hello) == nil })
	})
}

// TestAShortBudgetHasAnAttempt: a put whose budget is shorter than the pause after failures is tried.
func TestAShortBudgetHasAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		c := open(t, Options{}, f)
		p := c.Producer(ProducerOptions{RetryBudget: 2 * time.Second})
		c.failed(f.addr(), ErrUnreachable)
		c.mu.Lock()
		c.mu.addresses[0].retryAt = time.Now().Add(time.Hour)
		c.mu.Unlock()
		require.NoError(t, p.Publish(t.Context(), "t", hello))
	})
}

// disconnected waits until the producer has noticed that its connection broke.
func disconnected(t *testing.T, p *Producer) {
	t.Helper()
	eventually(t, "the end of the connection", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.mu.session == nil
	})
}

// TestMaxInFlight: Send waits for room, by messages and by bytes.
func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []ProducerOptions{{MaxInFlight: 3}, {MaxInFlightBytes: 3 * 20}} {
			f := fake(t, always(mute))
			p := open(t, Options{}, f).Producer(o)
			ctx, cancel := context.WithCancel(t.Context())
			var sent atomic.Int32
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					p.Send(ctx, "t", Message{Body: make([]byte, 10)}) // 20 bytes with PUB t
					sent.Add(1)
				})
			}
			eventually(t, "three puts", func() bool { return f.puts() == 3 })
			synctest.Wait()
			require.EqualValues(t, 3, sent.Load())
			require.Equal(t, 3, f.puts())
			cancel()
			wg.Wait()
		}
	})
}

// TestRoomIsNotLostWithAContext: a Send whose context ends as it is woken wakes the next one.
func TestRoomIsNotLostWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Options{}, fake(t)).Producer(ProducerOptions{MaxInFlight: 1})
		for range 300 {
			p.mu.Lock()
			p.mu.count = 1
			p.mu.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			in := make(chan error, 2)
			for _, c := range []context.Context{ctx, ctx, t.Context()} {
				ended.Go(func() {
					err := p.admit(c, &put{})
					if c != ctx {
						in <- err
					} else if err == nil { // it got the room, and frees it
						p.mu.Lock()
						p.mu.count--
						p.mu.Unlock()
						signal(p.room)
					}
				})
			}
			synctest.Wait()
			p.mu.Lock()
			p.mu.count = 0
			p.mu.Unlock()
			signal(p.room)
			cancel()
			select {
			case err := <-in:
				require.NoError(t, err)
			case <-time.After(5 * time.Second):
				t.Fatal("the last Send was not woken")
			}
			ended.Wait()
		}
		p.mu.Lock()
		p.mu.count = 0
		p.mu.Unlock()
	})
}

// TestASilentBrokerIsLeft: neither a frozen connection nor a put without an answer holds the
// producer forever.
func TestASilentBrokerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, other := fake(t), fake(t)
		c := open(t, Options{Heartbeat: time.Second}, f, other)
		p := c.Producer(ProducerOptions{Retry: RetryInDoubt})
		require.NoError(t, p.Publish(t.Context(), "t", hello))
		f.freeze()
		other.freeze()
		began := time.Now()
		require.NoError(t, p.Publish(t.Context(), "t", hello))
		require.Less(t, time.Since(began), 8*time.Second)
		require.Greater(t, time.Since(began), time.Second)

		p = c.Producer(ProducerOptions{AnswerTimeout: 300 * time.Millisecond})
		f.mu.Lock()
		f.script = func(int, fakePut) string { return mute }
		f.mu.Unlock()
		other.mu.Lock()
		other.script = f.script
		other.mu.Unlock()
		require.ErrorIs(t, p.Publish(t.Context(), "t", hello), ErrInDoubt)
	})
}

// TestClose answers every put, and refuses later ones.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		p := open(t, Options{}, f).Producer(ProducerOptions{Linger: 50 * time.Millisecond})
		u := p.Send(t.Context(), "t", hello)
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, u.Err())
		err := p.Publish(t.Context(), "t", hello)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, ErrNotStored)

		f = fake(t, always(mute))
		p = open(t, Options{}, f).Producer(ProducerOptions{})
		u = p.Send(t.Context(), "t", hello)
		eventually(t, "the put", func() bool { return f.puts() == 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, u.Err(), ErrInDoubt)
		require.ErrorIs(t, u.Err(), ErrClosed)
	})
}

// TestUnauthorized: a missing right is an error at once, a refused token after the budget.
func TestUnauthorized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, always(`E_UNAUTHORIZED AUTH failed for PUB on "t" ""`))
		p := open(t, Options{}, f).Producer(ProducerOptions{})
		err := p.Publish(t.Context(), "t", hello)
		require.ErrorIs(t, err, ErrUnauthorized)
		require.ErrorIs(t, err, ErrNotStored)
		require.Equal(t, 1, f.puts())

		guarded := fake(t, func(f *fakeBroker) { f.token = "secret" })
		_, err = Open(t.Context(), []string{guarded.addr()}, Options{Token: "wrong", Dialer: dialMemory})
		require.ErrorIs(t, err, ErrUnauthorized)
		p = open(t, Options{Token: "secret"}, guarded).Producer(ProducerOptions{RetryBudget: time.Second})
		require.NoError(t, p.Publish(t.Context(), "t", hello))
		guarded.mu.Lock()
		guarded.token = "another"
		guarded.mu.Unlock()
		guarded.drop()
		eventually(t, "a refused token", func() bool {
			err = p.Publish(t.Context(), "t", hello) // in doubt on the connection that broke
			return errors.Is(err, ErrUnauthorized)
		})
		require.ErrorIs(t, err, ErrNotStored)
	})
}

// TestTracerAndObserver: the trace's headers travel with the message, the application's map
// stays as it is.
func TestTracerAndObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		seen := &seen{}
		c := open(t, Options{Tracer: seen, Observer: seen}, f)
		p := c.Producer(ProducerOptions{})
		m := Message{Body: []byte("x"), Headers: Headers{"mine": "1"}}
		require.NoError(t, p.Publish(t.Context(), "t", m))
		require.NoError(t, p.PublishAll(t.Context(), "t", m, m))
		require.NoError(t, p.Publish(t.Context(), "t", Message{Body: []byte("late"), Delay: time.Second}))
		require.Equal(t, Headers{"mine": "1"}, m.Headers)
		ctx, cancel := context.WithCancel(t.Context())
		var headers []Headers
		require.NoError(t, c.Consume(ctx, "t", "c", ConsumeOptions{MaxInFlight: 1}, func(ctx context.Context, d *Delivery) error {
			require.Equal(t, "span", ctx.Value(seenKey{}))
			if headers = append(headers, d.Headers); len(headers) == 4 {
				cancel()
			}
			return nil
		}))
		traced := Headers{"mine": "1", "traceparent": "00-1"}
		require.Equal(t, []Headers{traced, traced, traced, nil}, headers)
		require.EqualValues(t, 3, seen.puts.Load())
		require.EqualValues(t, 4, seen.messages.Load())
		require.EqualValues(t, 4, seen.handled.Load())
		require.EqualValues(t, 7, seen.ended.Load())
		require.NotZero(t, seen.connected.Load())
	})
}

// seen counts events and spans.
type seen struct {
	NoObserver
	puts, messages, handled, ended, connected atomic.Int64
}

type seenKey struct{}

func (s *seen) Published(_ string, messages, _ int, _ time.Duration, _ error) {
	s.puts.Add(1)
	s.messages.Add(int64(messages))
}
func (s *seen) Handled(*Delivery, time.Duration, error) { s.handled.Add(1) }
func (s *seen) Connected(string)                        { s.connected.Add(1) }
func (s *seen) Publish(_ context.Context, _ string, h Headers) func(error) {
	if h != nil {
		h.Set("traceparent", "00-1")
	}
	return func(error) { s.ended.Add(1) }
}
func (s *seen) Handle(ctx context.Context, _ *Delivery) (context.Context, func(error)) {
	return context.WithValue(ctx, seenKey{}, "span"), func(error) { s.ended.Add(1) }
}
