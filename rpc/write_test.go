package rpc

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/tcp"
)

// overTCP is a connection without goroutines, and its other end.
func overTCP(t *testing.T) (*conn, *net.TCPConn) {
	t.Helper()
	raw, far := tcp.Pair(t)
	tune(raw)
	c := newLonePeer(t).peer.t.newConn(raw, true)
	c.wr.open(raw, true)
	t.Cleanup(func() { c.close(errClosed) })
	return c, far
}

// newCheckedReader reads the frames of a peer of this build.
func newCheckedReader(r io.Reader) *frameReader {
	f := newFrameReader(r)
	f.checked = true
	return f
}

// queueNumbered queues a frame whose bytes all are n.
func queueNumbered(t *testing.T, c *conn, n byte, size int) {
	t.Helper()
	require.NoError(t, c.out.add(frameOf(kindFrame, ClassReplica, "h", bytes.Repeat([]byte{n}, size))))
}

func requireNumbered(t *testing.T, in *frameReader, n byte, size int) {
	t.Helper()
	a, err := in.next()
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{n}, size), a.payload)
}

// A flush sends the frame itself: no other goroutine is needed, and none is woken.
func TestFlushSends(t *testing.T) {
	c, far := overTCP(t)
	in := newCheckedReader(far)
	for n := range byte(3) {
		queueNumbered(t, c, n, 100)
		queueNumbered(t, c, n, 1000)
		c.flush()
		requireNumbered(t, in, n, 100)
		requireNumbered(t, in, n, 1000)
	}
	require.Empty(t, c.out.wake)
	require.True(t, c.wr.sent.Load(), "no heartbeat is due")
}

// The writer sends the bytes that a socket does not take at once, and frames too large for a
// flush, in order and each byte once.
func TestFlushLeavesTheRestToTheWriter(t *testing.T) {
	for _, size := range []int{1000, 50_000, flushBytes, 3 * flushBytes} {
		c, far := overTCP(t)
		const frames = 250
		for n := range byte(frames) {
			queueNumbered(t, c, n, size)
			c.flush() // waits for nobody, though nobody reads
			if n == 0 {
				require.Equal(t, size >= flushBytes, len(c.out.wake) > 0, "what is too long is the writer's")
			}
		}
		if size > 1000 {
			require.NotEmpty(t, c.out.wake)
		}
		var writer sync.WaitGroup
		writer.Go(c.write)
		in := newCheckedReader(far)
		for n := range byte(frames) {
			requireNumbered(t, in, n, size)
		}
		c.close(errClosed)
		writer.Wait()
	}
}

// A failed write closes the connection.
func TestWriteFails(t *testing.T) {
	c, _ := overTCP(t)
	require.NoError(t, c.raw.Close())
	queueNumbered(t, c, 1, 100)
	c.write()
	require.True(t, c.closed())
}

// While another goroutine writes, a flush leaves the frame to the writer, which is woken
// for it.
func TestFlushBesideTheWriter(t *testing.T) {
	c, far := overTCP(t)
	c.wr.Lock()
	queueNumbered(t, c, 1, 100)
	c.flush()
	c.wr.Unlock()
	require.NotEmpty(t, c.out.wake)
	require.NoError(t, c.drain())
	requireNumbered(t, newCheckedReader(far), 1, 100)
}

// A connection that cannot be written to without waiting is left to the writer.
func TestFlushOverAnythingElse(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := newLonePeer(t).peer.t.newConn(near, true)
	defer c.close(errClosed)
	c.wr.open(near, true)
	queueNumbered(t, c, 1, 100)
	c.flush()
	require.NotEmpty(t, c.out.wake)
}

// However frames are sent, all arrive, and those of one goroutine in their order.
func TestFlushAndSendTogether(t *testing.T) {
	a, b := pair(t)
	const senders, each = 4, 500
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := range each {
				f := Frame{Class: ClassReplica, Header: note{N: s}, Payload: [][]byte{{byte(n >> 8), byte(n)}}}
				if n%2 == 0 {
					_ = a.Send("b", f)
					continue
				}
				_ = a.Queue("b", f)
				a.Flush("b")
			}
		})
	}
	all.Wait()
	next := make([]int, senders)
	for _, s := range b.waitFrames(senders * each) {
		var h note
		require.NoError(t, Unmarshal(s.f.Header, &h))
		require.Equal(t, next[h.N], int(s.f.Payload[0])<<8|int(s.f.Payload[1]))
		next[h.N]++
	}
}
