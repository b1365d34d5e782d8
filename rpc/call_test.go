package rpc

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/outcome"
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
		require.NoError(t, c.respond(7, unencodable{}, nil))
		var r responseHeader
		sent(t, c, &r)
		require.EqualValues(t, 7, r.ID)
		require.Error(t, r.Error.Err())

		l.answerWith(func(context.Context, ident.Node, string, []byte) (any, error) { return nil, nil })
		l.peer.t.o.Windows.Control = 1
		c = l.conn(false, 1)
		require.NoError(t, c.respond(1, nil, nil))
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
