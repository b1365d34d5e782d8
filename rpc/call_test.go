package rpc

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/stretchr/testify/require"
)

// sent decodes the header of the newest frame that waits to go out on c.
func sent(t *testing.T, c *conn, header any) *outFrame {
	t.Helper()
	q := &c.out.mu.queues[ClassControl.level()]
	require.NotNil(t, q.front())
	f := q.frames[len(q.frames)-1]
	require.NoError(t, Unmarshal(f.header, header))
	return f
}

func TestCallWithoutAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLonePeer(t)
		l.peer.t.peers.Store(&map[ident.Node]*peer{"b": l.peer})
		out, _ := l.up(1)
		began := time.Now()
		err := l.peer.t.Call(t.Context(), "b", "hang", 1, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, callTimeout, time.Since(began), "of a caller without a deadline")
		require.Empty(t, out.calls.mu.waiting)

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, l.peer.t.Call(ctx, "b", "hang", 1, nil), context.DeadlineExceeded)
		var q requestHeader
		sent(t, out, &q)
		require.EqualValues(t, 50, q.WaitMS, "the other side need not wait longer")

		go out.close(errSilent)
		err = l.peer.t.Call(t.Context(), "b", "hang", 1, nil)
		require.True(t, ClassOf(err) == outcome.ClassInDoubt || ClassOf(err) == ClassOf(ErrDown), err)
		require.Empty(t, out.calls.mu.waiting)
		require.ErrorIs(t, out.out.push(newOutFrame(kindHeartbeat, 0, nil)), ErrDown)
	})
}

func TestAnswerIsTakenOnce(t *testing.T) {
	var c calls
	id, ch := c.open()
	header, err := Marshal(responseHeader{ID: id})
	require.NoError(t, err)
	for range 3 { // a peer that repeats itself holds nobody up
		require.NoError(t, c.complete(arrival{header: header}))
	}
	require.Len(t, ch, 1)
	require.ErrorIs(t, c.complete(arrival{header: []byte{0xc1}}), errMalformed)
}

func TestAnswerThatIsThereIsPreferred(t *testing.T) {
	c := newLonePeer(t).conn(true, 1)
	c.close(errSilent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		ch := make(chan response, 1)
		ch <- response{}
		_, err := c.await(ctx, ch)
		require.NoError(t, err)
	}
}

func TestServingEndsWithThePatienceOfTheCaller(t *testing.T) {
	for wait, want := range map[int64]time.Duration{-5: time.Millisecond, 50: 50 * time.Millisecond, 1 << 50: callTimeout} {
		synctest.Test(t, func(t *testing.T) {
			l := newLonePeer(t)
			l.answerWith(func(ctx context.Context, _ ident.Node, _ string, _ []byte) (any, error) {
				deadline, _ := ctx.Deadline()
				require.Equal(t, want, time.Until(deadline))
				return nil, nil
			})
			require.NoError(t, l.conn(false, 1).serve(t.Context(), requestHeader{WaitMS: wait}, nil))
		})
	}
}

func TestServingEndsWithTheConnection(t *testing.T) {
	a, b := pair(t)
	serving, ended := make(chan struct{}), make(chan error, 1)
	b.answerWith(func(ctx context.Context, _ ident.Node, _ string, _ []byte) (any, error) {
		close(serving)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, nil
	})
	go func() { _ = a.Call(context.Background(), "b", "hang", 1, nil) }()
	<-serving
	require.NoError(t, a.Close())
	require.Equal(t, context.Canceled, <-ended)
}

type unencodable struct{}

func (unencodable) AppendBinary([]byte) ([]byte, error) { return nil, errors.New("unencodable") }

// A response that cannot be encoded is answered as an error. One that finds no room
// in the window waits as long as its caller, and the connection stays.
func TestResponseIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLonePeer(t)
		c := l.conn(false, 1)
		require.NoError(t, c.respond(requestHeader{ID: 7}, unencodable{}, nil))
		var r responseHeader
		sent(t, c, &r)
		require.EqualValues(t, 7, r.ID)
		require.Error(t, r.Error.Err())

		l.answerWith(func(context.Context, ident.Node, string, []byte) (any, error) { return nil, nil })
		l.peer.t.o.windows[ClassControl] = 1
		c = l.conn(false, 1)
		require.NoError(t, c.respond(requestHeader{ID: 1}, nil, nil))
		header, err := Marshal(requestHeader{ID: 2, WaitMS: 50})
		require.NoError(t, err)
		var own sync.WaitGroup
		began := time.Now()
		require.NoError(t, c.admit(t.Context(), arrival{header: header}, &own))
		own.Wait()
		require.Equal(t, 50*time.Millisecond, time.Since(began))
		require.NoError(t, c.cause)
		require.Empty(t, c.slots)
	})
}

// Frames and requests travel on the connection that their sender dialled.
func TestKindsBelongToADirection(t *testing.T) {
	l := newLonePeer(t)
	for _, tt := range []struct {
		kind    kind
		class   Class
		dialled bool
	}{
		{kindFrame, ClassReplica, true}, {kindRequest, ClassControl, true}, {kindResponse, ClassControl, false},
		{kindHello, 0, true}, {kindHello, 0, false},
	} {
		c := l.conn(tt.dialled, 1)
		l.peer.mu.in = c // whatever it was dialled by
		c.in = newFrameReader(bytes.NewReader(appendPiece(nil, prelude{kind: tt.kind, class: tt.class}, []byte{0x90})))
		var own sync.WaitGroup
		require.ErrorIs(t, c.read(t.Context(), l.peer, &own), errMalformed, "%+v", tt)
		own.Wait()
	}
}

// TestCallsAreLimitedByTheirMethod: a request or a response beyond the limit is refused as too
// large, and the connection stays.
func TestCallsAreLimitedByTheirMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := func(method string) CallLimits {
			if method == "large" {
				return CallLimits{Request: 1 << 20, Response: 1 << 20}
			}
			return CallLimits{Request: 1 << 10, Response: 1 << 10}
		}
		a, b := newFabric().pair(t, func(o *Options) { o.Limits = limits })
		b.answerWith(func(_ context.Context, _ ident.Node, _ string, req []byte) (any, error) {
			var n note
			err := Unmarshal(req, &n)
			return note{Text: strings.Repeat("y", n.N)}, err
		})
		ask := func(method string, request, response int) error {
			return a.Call(t.Context(), "b", method, note{N: response, Text: strings.Repeat("x", request)}, &note{})
		}
		require.NoError(t, ask("small", 500, 500))
		require.NoError(t, ask("large", 900_000, 900_000))
		require.ErrorIs(t, ask("small", 2000, 1), errTooLarge)
		require.ErrorIs(t, ask("small", 1, 2000), errTooLarge)
		require.ErrorIs(t, ask("large", 2<<20, 1), errTooLarge)

		// A broker that does not know these limits sends and answers anyway.
		a.o.Limits = func(string) CallLimits { return CallLimits{Request: MaxPayload, Response: 1 << 10} }
		require.ErrorIs(t, ask("small", 2000, 1), errTooLarge, "refused by the other side")
		require.ErrorIs(t, ask("large", 1, 900_000), errTooLarge, "refused before it is decoded")
		require.NoError(t, ask("small", 500, 500))
		require.EqualValues(t, 1, a.Counters().Connects)
		require.Error(t, ask("large", 2<<20, 1))
		wait.Until(t, func() bool { return a.Counters().Connects > 1 }, "the connection is made again")
	})
}

// TestALongRequestTakesNoMemory: a request beyond its limit is refused when its header is there,
// before its payload is read. Of 64 MiB, 2.3 GiB were taken.
func TestALongRequestTakesNoMemory(t *testing.T) {
	l := newLonePeer(t)
	l.peer.t.o.Limits = func(string) CallLimits { return CallLimits{Request: 1 << 20} }
	header, err := Marshal(requestHeader{ID: 1, Method: "queue.deferred", WaitMS: 1000})
	require.NoError(t, err)
	wire := appendPiece(nil, prelude{kind: kindRequest, class: ClassControl, whole: 64 << 20, here: pieceBytes}, header)
	in := newFrameReader(bytes.NewReader(append(wire, make([]byte, pieceBytes)...)))
	in.bound = l.conn(false, 1).bound
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = in.next()
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, errMalformed)
	require.ErrorContains(t, err, "queue.deferred")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}
