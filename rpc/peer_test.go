package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

// lonePeer is a peer without a network: the test makes and ends its connections.
type lonePeer struct {
	*peer
	*recorder
	t *testing.T
}

func newLonePeer(t *testing.T) *lonePeer {
	log, _ := logtest.NewNullLogger()
	r := newRecorder(t)
	tr := &Transport{o: Options{Handler: r}.withDefaults(), log: logrus.FieldLogger(log), start: time.Now().Add(-time.Hour)}
	tr.self.Store(&Hello{Node: "a", Incarnation: 1})
	return &lonePeer{newPeer(tr, "b", "b:1", func() {}), r, t}
}

// conn is a connection to an incarnation of the peer, not attached yet.
func (l *lonePeer) conn(dialled bool, inc ident.Incarnation) *conn {
	near, far := net.Pipe()
	l.t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	c := l.peer.t.newConn(near, dialled)
	c.address, c.peer = l.peer.mu.address, Hello{Node: "b", Incarnation: inc}
	return c
}

func (l *lonePeer) attached(dialled bool, inc ident.Incarnation) *conn {
	c := l.conn(dialled, inc)
	l.attach(c)
	return c
}

func (l *lonePeer) up(inc ident.Incarnation) (out, in *conn) {
	out, in = l.attached(true, inc), l.attached(false, inc)
	l.told(seen{node: "b", inc: inc, up: true})
	return out, in
}

// told expects the calls of the Handler since the last time.
func (l *lonePeer) told(want ...seen) {
	l.t.Helper()
	require.Equal(l.t, want, l.calls())
	l.forget()
}

func (l *lonePeer) refuse() {
	l.failed(l.t.Context(), "b:1", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
}

func TestPeerIsUpOnBothConnectionsOfOneIncarnation(t *testing.T) {
	l := newLonePeer(t)
	out := l.attached(true, 5)
	old := l.attached(false, 4)
	l.told()
	in := l.attached(false, 5)
	l.told(seen{node: "b", inc: 5, up: true})
	require.Equal(t, errReplaced, old.cause)
	l.detach(old)
	l.told()
	require.NoError(t, l.deliver(in, Received{}))
	l.told(seen{node: "b", inc: 5, frame: true})

	next := l.attached(false, 6)
	l.told(seen{node: "b", inc: 5})
	l.detach(out)
	require.Nil(t, l.sender.Load())
	l.attached(true, 6)
	l.told(seen{node: "b", inc: 6, up: true})
	require.Equal(t, errReplaced, l.deliver(in, Received{}), "what the one before said comes too late")
	l.told()
	l.detach(next)
	l.told(seen{node: "b", inc: 6})
}

func TestOlderIncarnationsAreNotAdmitted(t *testing.T) {
	l := newLonePeer(t)
	require.NoError(t, l.admits(Hello{Incarnation: 3}))
	l.attached(false, 5)
	require.Error(t, l.admits(Hello{Incarnation: 4}))
	for _, inc := range []ident.Incarnation{5, 6} {
		require.NoError(t, l.admits(Hello{Incarnation: inc}))
	}
}

// A refusal proves the process dead that was connected: once, not while it holds a
// connection, and not the one that came after it.
func TestRefusedIsOnlyWhoWasUp(t *testing.T) {
	l := newLonePeer(t)
	l.detach(l.attached(true, 1))
	l.refuse()
	l.told() // it was never up

	out, in := l.up(2)
	l.detach(out)
	l.refuse()
	l.told(seen{node: "b", inc: 2})
	l.detach(in)
	l.told(seen{node: "b", inc: 2, refused: true})
	l.refuse()
	l.told()

	out, in = l.up(3)
	l.detach(out)
	l.detach(in)
	l.told(seen{node: "b", inc: 3})
	l.failed(t.Context(), "b:1", os.ErrDeadlineExceeded)
	l.failed(t.Context(), "b:2", syscall.ECONNREFUSED)
	l.told()
	l.refuse()
	l.told(seen{node: "b", inc: 3, refused: true})
}

// A process that is stopped accepts connections and answers none: that is known from one that is gone.
func TestSilentIsNotRefused(t *testing.T) {
	l := newLonePeer(t)
	tr := l.peer.t
	tr.peers.Store(&map[ident.Node]*peer{"b": l.peer})
	require.False(t, tr.Unanswered("b"))
	l.failed(t.Context(), "b:1", fmt.Errorf("hello: %w", os.ErrDeadlineExceeded))
	require.True(t, l.silent.Load())
	l.refuse()
	require.False(t, l.silent.Load(), "its process is gone")
	l.failed(t.Context(), "b:1", &net.OpError{Op: "dial", Err: context.DeadlineExceeded})
	require.True(t, tr.Unanswered("b"), "its host is off")
	require.False(t, tr.Unanswered("c"), "a stranger")
	l.failed(t.Context(), "b:1", fmt.Errorf("%w: another cluster", errRefused))
	require.False(t, l.silent.Load(), "that is an answer")
	l.failed(t.Context(), "b:1", os.ErrDeadlineExceeded)
	l.attached(true, 1)
	require.False(t, l.silent.Load())
}

func TestRefusalAtAFormerAddressProvesNothing(t *testing.T) {
	l := newLonePeer(t)
	out, in := l.up(1)
	l.detach(out)
	l.refuse()
	l.told(seen{node: "b", inc: 1})
	l.readdress("b:2")
	l.detach(in)
	l.told()
	l.refuse()                                         // of the dial that was in progress
	l.failed(t.Context(), "b:2", syscall.ECONNREFUSED) // where it never was
	l.told()
}

func TestConnectionOvertakenByAChangeIsClosed(t *testing.T) {
	l := newLonePeer(t)
	early := l.conn(true, 1)
	l.peer.t.self.Store(&Hello{Node: "a", Incarnation: 2})
	l.attach(early)
	require.Equal(t, errIncarnation, early.cause)

	early = l.conn(true, 1)
	l.readdress("b:2")
	l.attach(early)
	require.Equal(t, errReaddressed, early.cause)
	require.Nil(t, l.sender.Load())

	l.up(1)
	l.end(errRemoved)
	l.told(seen{node: "b", inc: 1})
	late := l.attached(false, 1)
	require.Equal(t, errRemoved, late.cause)

	l = newLonePeer(t)
	out, _ := l.up(1)
	l.peer.t.closed.Store(true)
	l.detach(out)
	late = l.attached(true, 1)
	require.Equal(t, errClosed, late.cause)
	require.Nil(t, l.sender.Load())
	l.told() // nobody is interested any more
}

func TestPeerIsHeardOnEitherConnection(t *testing.T) {
	l := newLonePeer(t)
	out, in := l.up(1)
	out.lastRead.Store(0)
	l.check()
	l.told(seen{node: "b", inc: 1})
	require.Equal(t, errSilent, out.cause, "each connection has to be heard")
	l.attached(true, 1)
	l.told(seen{node: "b", inc: 1, up: true})
	require.NoError(t, l.deliver(in, Received{}))
	l.told(seen{node: "b", inc: 1, frame: true})

	l = newLonePeer(t)
	out, in = l.up(1)
	silent := l.peer.t.now() - int64(l.peer.t.o.Times.Silent) - 1
	out.lastRead.Store(silent)
	in.lastRead.Store(silent)
	l.check()
	l.told(seen{node: "b", inc: 1})
	in.lastRead.Store(l.peer.t.now())
	require.NoError(t, l.deliver(in, Received{}))
	l.told(seen{node: "b", inc: 1, up: true}, seen{node: "b", inc: 1, frame: true})
}

// A frame that comes while the dialled connection has just been closed waits for the next
// one: its Handler may answer at once, and that answer would be lost while the peer,
// which has both connections of its own, waits for it.
func TestFrameWaitsForAWayToAnswer(t *testing.T) {
	l := newLonePeer(t)
	out, in := l.up(1)
	out.close(errIncarnation) // its reader has not noticed yet
	waits := make(chan error, 1)
	go func() { waits <- l.deliver(in, Received{}) }()
	l.wait("the end of the connection", func(log []seen) bool { return len(log) > 0 })
	l.attached(true, 1)
	require.NoError(t, <-waits)
	l.told(seen{node: "b", inc: 1}, seen{node: "b", inc: 1, up: true}, seen{node: "b", inc: 1, frame: true})
}

// A frame that came before our own connection stood waits for it, or for the end of
// its connection.
func TestFrameThatWaitsEndsWithItsConnection(t *testing.T) {
	l := newLonePeer(t)
	deliver := func(c *conn) chan error {
		waits := make(chan error, 1)
		go func() { waits <- l.deliver(c, Received{}) }()
		return waits
	}
	in := l.attached(false, 1)
	waits := deliver(in)
	in.close(io.ErrUnexpectedEOF)
	require.ErrorIs(t, <-waits, io.ErrUnexpectedEOF)
	l.detach(in)

	waits = deliver(l.attached(false, 1))
	l.attached(false, 2)
	err := <-waits
	require.True(t, errors.Is(err, errReplaced), err)
	l.attached(true, 2)
	l.told(seen{node: "b", inc: 2, up: true})
}

func TestIncomingConnectionEndsABackOff(t *testing.T) {
	l := newLonePeer(t)
	l.attached(false, 1)
	require.Len(t, l.redial, 1, "it lives")
	<-l.redial
	l.attached(true, 1)
	l.attached(false, 1)
	require.Empty(t, l.redial)
	l.readdress("b:1")
	require.Empty(t, l.redial)
	l.readdress("b:2")
	require.Len(t, l.redial, 1)
}
