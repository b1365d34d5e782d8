package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// consuming runs Consume in the background.
type consuming struct {
	cancel context.CancelFunc
	err    chan error
}

func consume(t *testing.T, c *Client, o ConsumeOptions, h Handler) *consuming {
	ctx, cancel := context.WithCancel(t.Context())
	r := &consuming{cancel, make(chan error, 1)}
	go func() { r.err <- c.Consume(ctx, "t", "c", o, h) }() // ends with ctx
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.err:
		case <-time.After(10 * time.Second):
			t.Error("Consume does not end")
		}
	})
	return r
}

// stop ends the consumer and returns Consume's error.
func (r *consuming) stop() error {
	r.cancel()
	err := <-r.err
	r.err <- err
	return err
}

func TestConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		c := open(t, Options{}, f)
		var got atomic.Int32
		r := consume(t, c, ConsumeOptions{}, func(_ context.Context, d *Delivery) error {
			require.Equal(t, "t", d.Topic)
			require.Equal(t, "c", d.Channel)
			got.Add(1)
			return nil
		})
		for range 1000 {
			f.publish("t", "", "x")
		}
		eventually(t, "all messages", func() bool { return got.Load() == 1000 })
		require.NoError(t, r.stop())
		require.Len(t, f.commands("FIN"), 1000)
		require.Len(t, f.commands("CLS"), 1)
		require.Empty(t, f.bodies("t"))
	})
}

// TestFailedMessagesComeAgain after the delay that the handler or the options say.
func TestFailedMessagesComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		var attempts []int
		r := consume(t, open(t, Options{}, f), ConsumeOptions{MaxInFlight: 1}, func(_ context.Context, d *Delivery) error {
			attempts = append(attempts, d.Attempts)
			switch d.Attempts {
			case 1:
				return errors.New("broken")
			case 2:
				return fmt.Errorf("wrapped: %w", RetryAfter(errors.New("later"), 1500*time.Millisecond))
			case 3:
				return RetryAfter(errors.New("now"), -1)
			}
			return nil
		})
		f.publish("t", "", "x")
		eventually(t, "the finish", func() bool { return len(f.commands("FIN")) == 1 })
		require.NoError(t, r.stop())
		const id = "0000000000000001 "
		require.Equal(t, []string{"REQ " + id + "1000", "REQ " + id + "1500", "REQ " + id + "0"}, f.commands("REQ"))
		require.Equal(t, []int{1, 2, 3, 4}, attempts)
	})
}

// TestMaxInFlightOfHandlers bounds the handlers, also while those of a broken connection run.
func TestMaxInFlightOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		var running, most atomic.Int32
		release := make(chan struct{})
		r := consume(t, open(t, Options{}, f), ConsumeOptions{MaxInFlight: 5}, func(context.Context, *Delivery) error {
			now := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			<-release
			return nil
		})
		for range 50 {
			f.publish("t", "", "x")
		}
		eventually(t, "five handlers", func() bool { return running.Load() == 5 })
		f.drop()
		eventually(t, "a new connection", func() bool { return len(f.commands("SUB")) == 2 && len(f.commands("RDY 0")) == 1 })
		synctest.Wait()
		require.EqualValues(t, 5, running.Load())
		close(release)
		eventually(t, "all messages", func() bool { return len(f.commands("FIN")) == 50 })
		require.EqualValues(t, 5, most.Load())
		require.NoError(t, r.stop())
	})
}

// TestLeasesAreExtended while the handler runs, and end with it.
func TestLeasesAreExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		r := consume(t, open(t, Options{}, f), ConsumeOptions{Lease: time.Second}, func(ctx context.Context, _ *Delivery) error {
			select {
			case <-ctx.Done():
				t.Error("the lease ended")
			case <-time.After(1600 * time.Millisecond):
			}
			return nil
		})
		f.publish("t", "", "x")
		eventually(t, "the finish", func() bool { return len(f.commands("FIN")) == 1 })
		require.NoError(t, r.stop())
		require.GreaterOrEqual(t, len(f.commands("TOUCH")), 2)
	})
}

// TestLeasesEnd with the connection, with a refused TOUCH, and after Lease with NoTouch; then
// no outcome is sent.
func TestLeasesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, of := range map[string]struct {
			o       ConsumeOptions
			noTouch bool
			drop    bool
		}{
			"connection": {o: ConsumeOptions{}, drop: true},
			"refused":    {o: ConsumeOptions{Lease: time.Second}, noTouch: true},
			"no touch":   {o: ConsumeOptions{Lease: time.Second, NoTouch: true}},
		} {
			f := fake(t, func(f *fakeBroker) { f.noTouch = of.noTouch })
			causes := make(chan error, 10)
			started := make(chan struct{}, 10)
			r := consume(t, open(t, Options{}, f), of.o, func(ctx context.Context, d *Delivery) error {
				if d.Attempts > 1 {
					return nil
				}
				started <- struct{}{}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil
			})
			f.publish("t", "", "x")
			<-started
			began := time.Now()
			if of.drop {
				f.drop()
			}
			select {
			case err := <-causes:
				require.ErrorIs(t, err, ErrLeaseLost, name)
			case <-time.After(5 * time.Second):
				t.Fatal(name, "the lease does not end")
			}
			require.Less(t, time.Since(began), 1500*time.Millisecond, name)
			if of.drop {
				eventually(t, "the second attempt", func() bool { return len(f.commands("FIN")) == 1 })
			} else {
				synctest.Wait()
				require.Empty(t, f.commands("FIN"), name)
			}
			require.NoError(t, r.stop(), name)
		}
	})
}

// TestDrain waits for the handlers at the end, with live contexts, and sends their outcomes.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		started := make(chan struct{}, 3)
		r := consume(t, open(t, Options{}, f), ConsumeOptions{MaxInFlight: 3}, func(ctx context.Context, _ *Delivery) error {
			started <- struct{}{}
			time.Sleep(100 * time.Millisecond)
			return ctx.Err()
		})
		f.publish("t", "", "1", "2", "3", "4")
		for range 3 {
			<-started
		}
		require.NoError(t, r.stop())
		require.Len(t, f.commands("FIN"), 3)
		require.Equal(t, []string{"4"}, f.bodies("t"))
	})
}

// TestDrainEnds: a handler that runs longer loses its lease, and Consume says so.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		started := make(chan struct{}, 3)
		r := consume(t, open(t, Options{}, f), ConsumeOptions{DrainTimeout: 50 * time.Millisecond}, func(ctx context.Context, _ *Delivery) error {
			started <- struct{}{}
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
			return nil
		})
		f.publish("t", "", "1")
		<-started
		require.ErrorIs(t, r.stop(), ErrNotDrained)
		require.Empty(t, f.commands("FIN"))
	})
}

// TestAPlannedStop: a broker that stops gets the outcomes of its messages, while the consumer
// continues at another one. An ordered consumer continues after them.
func TestAPlannedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ordered := range []bool{false, true} {
			stops, other := fake(t), fake(t)
			c := open(t, Options{}, stops)
			release, started := make(chan struct{}), make(chan struct{}, 10)
			var mu sync.Mutex
			var order []string
			r := consume(t, c, ConsumeOptions{Ordered: ordered}, func(ctx context.Context, d *Delivery) error {
				started <- struct{}{}
				if string(d.Body) == "slow" {
					<-release
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, string(d.Body))
				return ctx.Err()
			})
			stops.publish("t", "", "slow")
			other.publish("t", "", "next")
			<-started
			c.learn([]string{other.addr()}, false)
			stops.announce()
			if ordered {
				time.Sleep(time.Second)
				require.Empty(t, other.commands("SUB"))
				close(release)
			}
			eventually(t, "the other broker", func() bool { return len(other.commands("FIN")) == 1 })
			if !ordered {
				require.Empty(t, stops.commands("FIN"))
				close(release)
			}
			eventually(t, "the outcome", func() bool { return len(stops.commands("FIN")) == 1 })
			require.NoError(t, r.stop())
			want := []string{"next", "slow"}
			if ordered {
				want = []string{"slow", "next"}
			}
			require.Equal(t, want, order)
			require.Empty(t, stops.commands("CLS"))
		}
	})
}

// slowly is a handler's error that takes its time until the outcome is made of it.
type slowly struct{ until <-chan struct{} }

func (slowly) Error() string { return "slowly" }

func (e slowly) As(any) bool { <-e.until; return false }

// TestAllOutcomesAreSentBeforeTheConnectionEnds: the last lease ends while the outcome of another
// message is still to be sent.
func TestAllOutcomesAreSentBeforeTheConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		c := open(t, Options{}, f)
		until, started, release := make(chan struct{}), make(chan struct{}, 2), make(chan struct{})
		r := consume(t, c, ConsumeOptions{}, func(_ context.Context, d *Delivery) error {
			started <- struct{}{}
			if string(d.Body) == "slow" {
				return slowly{until}
			}
			<-release
			return nil
		})
		f.publish("t", "", "slow")
		f.publish("t", "", "fast")
		<-started
		<-started
		f.announce()
		close(release)
		eventually(t, "the outcome of one", func() bool { return len(f.commands("FIN")) == 1 })
		time.Sleep(time.Second) // the connection would end now
		close(until)
		eventually(t, "the outcome of the other", func() bool { return len(f.commands("REQ")) == 1 })
		require.NoError(t, r.stop())
	})
}

// TestFromAppliesOnce: a connection that breaks does not move the channel again.
func TestFromAppliesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, from := range map[string]Position{"msgcount:0": FromSequence(0), "special:-1": Latest(), "timestamp:5": FromTime(time.Unix(5, 9))} {
			f := fake(t)
			r := consume(t, open(t, Options{}, f), ConsumeOptions{From: from}, func(context.Context, *Delivery) error { return nil })
			eventually(t, "SUB", func() bool { return len(f.commands("RDY")) == 1 })
			f.drop()
			eventually(t, "SUB", func() bool { return len(f.commands("RDY")) == 2 })
			require.NoError(t, r.stop())
			require.Equal(t, []string{"SUB_ADVANCED t c " + want, "SUB_ADVANCED t c"}, f.commands("SUB"))
		}
	})
}

// TestOrdered: the token arrives, and the handler of a broken connection returns before the
// next connection delivers.
func TestOrdered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		var mu sync.Mutex
		running := 0
		first := make(chan struct{})
		r := consume(t, open(t, Options{}, f), ConsumeOptions{Ordered: true}, func(ctx context.Context, d *Delivery) error {
			mu.Lock()
			running++
			require.Equal(t, 1, running)
			mu.Unlock()
			require.EqualValues(t, 7, d.Token)
			if d.Attempts == 1 {
				close(first)
				<-ctx.Done()
				time.Sleep(100 * time.Millisecond)
			}
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		f.publish("t", "", "x")
		<-first
		f.drop()
		eventually(t, "the finish", func() bool { return len(f.commands("FIN")) == 1 })
		require.NoError(t, r.stop())
		require.Equal(t, []string{"SUB_ORDERED t c", "SUB_ORDERED t c"}, f.commands("SUB"))
	})
}

// TestConsumeGivesUp only if the request is wrong or not allowed.
func TestConsumeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nothing := func(context.Context, *Delivery) error { return nil }
		refuse := func(text string) func(*fakeBroker) {
			return func(f *fakeBroker) { f.subscribed = func(string) string { return text } }
		}
		f := fake(t, refuse(`E_UNAUTHORIZED AUTH failed for SUB on "t" "c"`))
		err := open(t, Options{}, f).Consume(t.Context(), "t", "c", ConsumeOptions{}, nothing)
		require.ErrorIs(t, err, ErrUnauthorized)
		require.Len(t, f.commands("SUB"), 1)

		f = fake(t, refuse("E_AUTH_FAILED AUTH failed"))
		err = open(t, Options{}, f).Consume(t.Context(), "t", "c", ConsumeOptions{GiveUpAfter: 200 * time.Millisecond}, nothing)
		require.ErrorIs(t, err, ErrUnauthorized)
		require.Greater(t, len(f.commands("SUB")), 1)

		f = fake(t, refuse("E_INVALID invalid command SUB_ADVANCED"))
		c := open(t, Options{}, f)
		require.ErrorIs(t, c.Consume(t.Context(), "t", "c", ConsumeOptions{}, nothing), ErrInvalid, "a stock nsqd")
		for _, o := range []ConsumeOptions{{MaxInFlight: -1}, {Lease: time.Millisecond}, {Ordered: true, From: Latest()}} {
			require.ErrorIs(t, c.Consume(t.Context(), "t", "c", o, nothing), ErrInvalid)
		}
		require.ErrorIs(t, c.Consume(t.Context(), "t", "c/d", ConsumeOptions{}, nothing), ErrInvalid)

		sub, good := fake(t, refuse("E_SUB_FAILED SUB failed not ready: waiting")), fake(t)
		good.publish("t", "", "x")
		r := consume(t, open(t, Options{}, sub, good), ConsumeOptions{}, nothing)
		eventually(t, "the other broker", func() bool { return len(good.commands("FIN")) == 1 })
		require.NoError(t, r.stop())
	})
}

// TestDiscovery: an HTTP address gives all brokers, by /nodes, or by /lookup if the user may
// list those of its topic alone.
func TestDiscovery(t *testing.T) {
	f := fake(t, sockets)
	host, port, _ := strings.Cut(f.addr(), ":")
	observer := true
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.String())
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "", http.StatusUnauthorized)
		case r.URL.Path == "/nodes" && !observer:
			http.Error(w, "", http.StatusForbidden)
		default:
			fmt.Fprintf(w, `{"producers":[{"broadcast_address":%q,"tcp_port":%s}]}`, host, port)
		}
	}))
	defer s.Close()
	try := func(token string) error {
		c, err := Open(t.Context(), []string{s.URL}, Options{Token: token})
		if err != nil {
			return err
		}
		defer c.Close(t.Context())
		return c.Producer(ProducerOptions{RetryBudget: limit}).Publish(t.Context(), "t", hello)
	}
	require.NoError(t, try("secret"))
	require.Equal(t, []string{"/nodes"}, asked)
	require.ErrorIs(t, try("wrong"), ErrUnauthorized)
	observer, asked = false, nil
	require.NoError(t, try("secret"))
	require.Equal(t, []string{"/nodes", "/nodes", "/lookup?topic=t"}, asked)

	for _, bad := range []string{"", "nowhere", "ftp://x:1", "http://x:1/path", "x:"} {
		_, err := Open(t.Context(), []string{bad}, Options{})
		require.ErrorContains(t, err, "is not an address", bad)
	}
	_, err := Open(t.Context(), nil, Options{})
	require.Error(t, err)
	_, err = Open(t.Context(), []string{"127.0.0.1:1"}, Options{})
	require.ErrorIs(t, err, ErrUnreachable)
}

// TestLearn: brokers that /nodes lacks are dropped, those of the application stay.
func TestLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t)
		c := open(t, Options{}, f)
		known := func() (all []string) {
			for _, a := range c.mu.addresses {
				all = append(all, a.hostPort)
			}
			return all
		}
		c.learn([]string{"a:1", "b:1"}, true)
		require.Equal(t, []string{f.addr(), "a:1", "b:1"}, known())
		c.learn([]string{"c:1"}, false)
		require.Equal(t, []string{f.addr(), "a:1", "b:1", "c:1"}, known())
		c.learn([]string{"b:1", "c:1"}, true)
		require.Equal(t, []string{f.addr(), "b:1", "c:1"}, known())
	})
}

// TestPick prefers brokers that did not fail, then the one whose pause ends first.
func TestPick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{}, fake(t))
		c.mu.addresses = []*address{{hostPort: "a"}, {hostPort: "b"}, {hostPort: "c"}}
		c.failed("a", errSilent)
		for range 50 {
			at, wait, ok := c.pick()
			require.True(t, ok)
			require.NotEqual(t, "a", at)
			require.Zero(t, wait)
		}
		c.failed("b", errSilent)
		c.failed("b", errSilent)
		c.failed("b", errSilent)
		c.failed("c", errSilent)
		c.failed("c", errSilent)
		c.failed("c", errSilent)
		at, wait, _ := c.pick()
		require.Equal(t, "a", at)
		require.Positive(t, wait)
		c.succeeded("b")
		at, _, _ = c.pick()
		require.Equal(t, "b", at)
	})
}
