package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/rpc/peertls"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is one call of a Handler.
type seen struct {
	node        ident.Node
	inc         ident.Incarnation
	frame       bool
	up, refused bool
	f           Received
}

// recorder is a Handler that keeps its calls.
type recorder struct {
	t      testing.TB
	answer func(ctx context.Context, from ident.Node, method string, req []byte) (any, error)

	mu      sync.Mutex
	cond    *sync.Cond
	told    []seen
	drained func()
}

func newRecorder(t testing.TB) *recorder {
	r := &recorder{t: t}
	r.cond = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) add(s seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, s)
	r.cond.Broadcast()
}

func (r *recorder) Drained() {
	r.mu.Lock()
	drained := r.drained
	r.mu.Unlock()
	if drained != nil {
		drained()
	}
}

func (r *recorder) Frame(from ident.Node, inc ident.Incarnation, f Received) {
	r.add(seen{node: from, inc: inc, frame: true, f: f})
}

func (r *recorder) Peer(n ident.Node, inc ident.Incarnation, up, refused bool) {
	r.add(seen{node: n, inc: inc, up: up, refused: refused})
}

func (r *recorder) Serve(ctx context.Context, from ident.Node, method string, req []byte) (any, error) {
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	if answer == nil {
		return nil, ErrMethod
	}
	return answer(ctx, from, method, req)
}

func (r *recorder) answerWith(f func(context.Context, ident.Node, string, []byte) (any, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// calls gives the calls so far.
func (r *recorder) calls() []seen { return r.wait("nothing", func([]seen) bool { return true }) }

// wait blocks until ok holds for the calls so far.
func (r *recorder) wait(what string, ok func([]seen) bool) []seen {
	r.t.Helper()
	hangs := false
	defer time.AfterFunc(wait.Limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		hangs = true
		r.cond.Broadcast()
	}).Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !ok(r.told) {
		if hangs {
			r.t.Fatalf("hangs: after %s no %s; saw %d calls", wait.Limit, what, len(r.told))
		}
		r.cond.Wait()
	}
	return append([]seen(nil), r.told...)
}

func (r *recorder) waitPeer(n ident.Node, inc ident.Incarnation, up, refused bool) {
	r.t.Helper()
	r.wait(fmt.Sprintf("%s/%d up=%t refused=%t", n, inc, up, refused), func(log []seen) bool {
		for _, s := range log {
			if !s.frame && s.node == n && s.inc == inc && s.up == up && s.refused == refused {
				return true
			}
		}
		return false
	})
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = nil
}

func framesOf(log []seen) (out []seen) {
	for _, s := range log {
		if s.frame {
			out = append(out, s)
		}
	}
	return out
}

func (r *recorder) waitFrames(n int) []seen {
	r.t.Helper()
	return framesOf(r.wait(fmt.Sprintf("%d frames", n), func(log []seen) bool { return len(framesOf(log)) >= n }))
}

// broker is a Transport under test.
type broker struct {
	*Transport
	*recorder
	node    ident.Node
	address string
	logs    *logtest.Hook
}

// newBroker makes a broker with sockets. None of its times runs out in a test: a machine that is
// busy for a moment breaks no connection. The tests of the times use a fabric.
func newBroker(t testing.TB, node ident.Node, change ...func(*Options)) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	log, hook := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	r := newRecorder(t)
	o := Options{
		Self:    Hello{Cluster: "test", Node: node, Incarnation: 1},
		Listen:  l,
		Handler: r,
		Log:     log,
		Times:   Times{Silent: time.Hour, Dead: time.Hour, Dial: time.Hour, Handshake: time.Hour},
	}
	for _, f := range change {
		f(&o)
	}
	b := &broker{New(o), r, node, l.Addr().String(), hook}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// introduce gives everybody everybody's address.
func introduce(brokers ...*broker) {
	book := map[ident.Node]string{}
	for _, b := range brokers {
		book[b.node] = b.address
	}
	for _, b := range brokers {
		b.SetPeers(book)
	}
}

func waitUp(brokers ...*broker) {
	for _, b := range brokers {
		for _, other := range brokers {
			if other != b {
				b.waitPeer(other.node, other.self.Load().Incarnation, true, false)
			}
		}
	}
}

func pair(t testing.TB, change ...func(*Options)) (*broker, *broker) {
	t.Helper()
	a, b := newBroker(t, "a", change...), newBroker(t, "b", change...)
	introduce(a, b)
	waitUp(a, b)
	return a, b
}

type note struct {
	N    int
	Text string
}

func TestFrameArrivesAsSent(t *testing.T) {
	a, b := pair(t)
	parts := [][]byte{[]byte("one "), nil, []byte("two "), make([]byte, 3*pieceBytes+17), []byte("end")}
	for i := range parts[3] {
		parts[3][i] = byte(i * 7)
	}
	require.NoError(t, a.Send("b", Frame{ClassForward, note{5, "five"}, parts}))
	got := b.waitFrames(1)[0]
	require.Equal(t, ident.Node("a"), got.node)
	require.Equal(t, ident.Incarnation(1), got.inc)
	require.Equal(t, ClassForward, got.f.Class)
	var n note
	require.NoError(t, Unmarshal(got.f.Header, &n))
	require.Equal(t, note{5, "five"}, n)
	want := []byte{}
	for _, p := range parts {
		want = append(want, p...)
	}
	require.Equal(t, want, got.f.Payload)
	require.Equal(t, uint64(1), a.Counters().Sent[ClassForward])
	require.Equal(t, uint64(1), a.Counters().Connects)
	hello, ok := a.Transport.Peer("b")
	require.True(t, ok)
	require.Equal(t, uint16(Version), hello.Version)
}

func TestFramesOfOnePriorityKeepTheirOrder(t *testing.T) {
	a, b := pair(t)
	const n = 5000
	var number [n][4]byte
	for i := range n {
		binary.LittleEndian.PutUint32(number[i][:], uint32(i))
		c := []Class{ClassReplica, ClassControl}[i%2]
		require.NoError(t, a.Send("b", Frame{c, i, [][]byte{number[i][:]}}))
	}
	for i, s := range b.waitFrames(n) {
		require.Equal(t, uint32(i), binary.LittleEndian.Uint32(s.f.Payload))
	}
}

func TestFramesSentBeforeTheWayBackStandsArriveAfterUp(t *testing.T) {
	sent := make(chan struct{})
	a, b := newBroker(t, "a"), newBroker(t, "b", func(o *Options) {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			select { // b's way back stands later
			case <-sent:
			case <-ctx.Done():
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	})
	introduce(b, a)
	wait.Until(t, func() bool { return a.Send("b", Frame{ClassReplica, 1, nil}) == nil }, "the frame is sent")
	close(sent)
	b.waitFrames(1)
	require.True(t, b.calls()[0].up, "up comes before the first frame")
}

func TestSendToUnknownPeer(t *testing.T) {
	a := newBroker(t, "a")
	require.ErrorIs(t, a.Send("x", Frame{Class: ClassReplica}), ErrDown)
	require.Equal(t, uint64(1), a.Counters().Dropped[ClassReplica])
	require.ErrorIs(t, a.Call(t.Context(), "x", "m", 1, nil), ErrDown)
	require.False(t, a.Up("x"))
	require.Panics(t, func() { _ = a.Send("x", Frame{}) })
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFabric().pair(t)
		b.answerWith(func(_ context.Context, from ident.Node, method string, req []byte) (any, error) {
			var n note
			if err := Unmarshal(req, &n); err != nil {
				return nil, err
			}
			if method == "fail" {
				return nil, fmt.Errorf("partition 3: %w (1 of 2)", outcome.ErrNotEnough)
			}
			n.Text = string(from) + method
			return n, nil
		})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				var out note
				err := a.Call(t.Context(), "b", "echo", note{N: i}, &out)
				if err == nil && out != (note{i, "aecho"}) {
					err = fmt.Errorf("got %v", out)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		err := a.Call(t.Context(), "b", "fail", note{}, nil)
		require.ErrorIs(t, err, outcome.ErrNotEnough)
		require.NotErrorIs(t, err, outcome.ErrInDoubt)
		require.ErrorContains(t, err, "partition 3")
		require.Equal(t, outcome.ClassRetryHere, ClassOf(err))
	})
}

func TestCallEndsWithItsContextOrItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFabric().pair(t, func(o *Options) { o.maxServe = 2 })
		serving := make(chan struct{}, 8)
		b.answerWith(func(ctx context.Context, _ ident.Node, _ string, _ []byte) (any, error) {
			serving <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err := a.Call(ctx, "b", "hang", 1, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, outcome.ClassInDoubt, ClassOf(err))

		<-serving
		broken := make(chan error)
		for range 2 {
			go func() { broken <- a.Call(t.Context(), "b", "hang", 1, nil) }()
		}
		for got := 0; got < 2; { // both slots are taken once the first request gave up its own
			select {
			case <-serving:
				got++
			case err := <-broken:
				require.ErrorIs(t, err, outcome.ErrBusy)
				go func() { broken <- a.Call(t.Context(), "b", "hang", 1, nil) }()
			}
		}
		require.ErrorIs(t, a.Call(t.Context(), "b", "hang", 1, nil), outcome.ErrBusy)
		require.NoError(t, b.Close())
		for range 2 {
			err := <-broken
			require.Equal(t, outcome.ClassInDoubt, ClassOf(err), "%v", err)
		}
	})
}

func TestKilledPeerIsDeadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFabric().pair(t)
		serving, hang := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(hang) }) // before a.Close, which waits for it
		a.answerWith(func(context.Context, ident.Node, string, []byte) (any, error) {
			close(serving)
			<-hang // a request that heeds nothing must not delay the news
			return nil, nil
		})
		go func() { _ = b.Call(context.Background(), "a", "hang", 1, nil) }()
		<-serving
		began := time.Now()
		require.NoError(t, b.Close()) // as the kernel does for a killed process
		a.waitPeer("b", 1, false, true)
		require.LessOrEqual(t, time.Since(began), a.o.Times.BackoffMin)
		require.False(t, a.Up("b"))
		require.ErrorIs(t, a.Send("b", Frame{Class: ClassReplica}), ErrDown)
	})
}

func TestOtherAddressRefusingProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFabric().pair(t)
		a.SetPeers(map[ident.Node]string{"b": "nobody listens there"})
		a.waitPeer("b", 1, false, false)
		require.NoError(t, b.Close())
		a.forget()
		a.SetPeers(map[ident.Node]string{"b": b.address})
		log := a.wait("the refusal at the known address", func(log []seen) bool { return len(log) > 0 })
		require.True(t, log[0].refused)
	})
}

func TestNewIncarnationIsTold(t *testing.T) {
	a, b := pair(t)
	b.SetIncarnation(7)
	a.waitPeer("b", 1, false, false)
	a.waitPeer("b", 7, true, false)
	wait.Until(t, func() bool { return b.Send("a", Frame{ClassRelay, 1, nil}) == nil }, "b reaches a")
	require.Equal(t, ident.Incarnation(7), a.waitFrames(1)[0].inc)
}

func TestRemovedPeerIsRefused(t *testing.T) {
	a, b := pair(t)
	a.SetPeers(nil)
	a.waitPeer("b", 1, false, false)
	b.waitPeer("a", 1, false, false)
	wait.Until(t, func() bool { return logged(b, "not in the address book yet") }, "b is refused")
	a.forget()
	a.SetPeers(map[ident.Node]string{"b": b.address})
	a.waitPeer("b", 1, true, false)
}

func TestConnectionsThatEndMakeRoom(t *testing.T) {
	a := newBroker(t, "a", func(o *Options) { o.Connections = peertls.Limits{Admitted: 1, Waiting: 1} })
	for range 3 {
		stranger, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		require.NoError(t, stranger.Close())
	}
	b := newBroker(t, "b")
	introduce(a, b)
	waitUp(a, b)
}

func TestCloseWaitsForNoHandshake(t *testing.T) {
	a := newBroker(t, "a", func(o *Options) { o.Times.Handshake = time.Hour })
	stranger, err := net.Dial("tcp", a.address)
	require.NoError(t, err)
	defer stranger.Close()
	wait.Until(t, func() bool { return a.Counters().Accepted.Waiting == 1 }, "the stranger is accepted")
	require.NoError(t, a.Close())
}

func TestWindow(t *testing.T) {
	a, b := pair(t, func(o *Options) { o.windows = windows{ClassBulk: 1 << 20} })
	b.mu.Lock() // the reader of b stands still in its Handler
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		err = a.Send("b", Frame{ClassBulk, i, [][]byte{make([]byte, 300<<10)}})
	}
	require.ErrorIs(t, err, ErrWindow)
	require.NoError(t, a.Send("b", Frame{ClassReplica, 1, nil}), "each class has its own window")
	require.LessOrEqual(t, a.sender("b").out.waiting(ClassBulk), 1<<20)
	b.mu.Unlock()
	require.ErrorIs(t, a.Send("b", Frame{ClassBulk, 1, [][]byte{make([]byte, MaxPayload+1)}}), errTooLarge)
}

func TestReplicaOvertakesBulk(t *testing.T) {
	a, b := pair(t)
	b.mu.Lock()
	const bulk = 15
	for i := range bulk {
		require.NoError(t, a.Send("b", Frame{ClassBulk, i, [][]byte{make([]byte, 1<<20)}}))
	}
	require.NoError(t, a.Send("b", Frame{ClassReplica, 0, [][]byte{[]byte("live")}}))
	b.mu.Unlock()
	for i, s := range b.waitFrames(bulk + 1) {
		if s.f.Class == ClassReplica {
			require.Less(t, i, bulk, "came after all of the bulk")
			return
		}
	}
	t.Fatal("the append never came")
}

func logged(b *broker, text string) bool {
	for _, e := range b.logs.AllEntries() {
		if err, ok := e.Data[logrus.ErrorKey].(error); ok && errors.Is(err, errRefused) && contains(err, text) {
			return true
		}
	}
	return false
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// TestManyLargeAnswersAtOnce: they are more than the window holds, and the caller reads
// them as fast as it can. It keeps its connection.
func TestManyLargeAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFabric().pair(t, func(o *Options) { o.windows = windows{ClassControl: 1 << 17} })
		const calls = 32
		var together sync.WaitGroup
		together.Add(calls)
		b.answerWith(func(context.Context, ident.Node, string, []byte) (any, error) {
			together.Done()
			together.Wait()
			return note{Text: strings.Repeat("x", 1<<16)}, nil
		})
		errs := make(chan error, calls)
		for range calls {
			go func() {
				var out note
				errs <- a.Call(t.Context(), "b", "large", 1, &out)
			}()
		}
		for range calls {
			require.NoError(t, <-errs)
		}
	})
}
