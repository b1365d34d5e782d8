package rpc

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// flushBytes bounds one flush: a longer copy to the socket would delay the goroutine that flushes.
const flushBytes = 64 << 10

// writing is the sending half of a connection. The holder of its lock takes bursts from the outbox and writes them: the
// connection's writer, which waits for the socket, or a goroutine that flushes, which never waits.
type writing struct {
	sync.Mutex
	burst burst
	whole io.Writer                      // TCP: for writev
	buf   *bufio.Writer                  // under TLS, which has no writev, so that small slices share a record
	now   *concurrency.NonblockingWriter // nil = a flush cannot write here
	sent  atomic.Bool                    // something was sent since the last tick of the heartbeat
	bytes *atomic.Uint64                 // counts the bytes taken; nil = not counted
}

// Flush sends the frames that are queued for a peer, on this goroutine as far as the socket accepts
// them. It never blocks, but it is a system call: use it for a single uncontended frame.
func (t *Transport) Flush(to ident.Node) {
	if c := t.sender(to); c != nil {
		c.flush()
	}
}

// open is called before the first write. checked: payloads are sent with checksums.
func (w *writing) open(nc net.Conn, checked bool) {
	w.burst.checked = checked
	if _, ok := nc.(*tls.Conn); ok {
		w.buf = bufio.NewWriterSize(nc, readBufferBytes)
		return
	}
	w.whole, w.now = nc, concurrency.NewNonblockingWriter(nc)
}

// take fills the burst from the outbox.
func (w *writing) take(o *outbox) bool {
	some := o.take(&w.burst)
	if some && w.bytes != nil {
		w.bytes.Add(uint64(w.burst.total))
	}
	w.burst.sum()
	return some
}

// write sends the queued frames, one writev per burst, and heartbeats when there are none.
// Started by run, ends when the connection is closed.
func (c *conn) write() {
	tick := time.NewTicker(c.t.o.Times.Heartbeat)
	defer tick.Stop()
	for {
		if err := c.drain(); err != nil {
			c.close(err)
			return
		}
		select {
		case <-c.done:
			return
		case <-c.out.wake:
			runtime.Gosched() // goroutines that are ready to run add to the burst first
		case <-tick.C:
			if !c.wr.sent.Swap(false) {
				_ = c.out.push(newOutFrame(kindHeartbeat, 0, nil)) // fails only when closed
			}
		}
	}
}

// drain writes until the queue is empty, starting with the rest of a flush.
func (c *conn) drain() error {
	w := &c.wr
	w.Lock()
	defer w.Unlock()
	for len(w.burst.left) > 0 || w.take(c.out) {
		w.sent.Store(true)
		if err := w.write(); err != nil {
			return err
		}
		w.burst.reset()
	}
	return nil
}

// write writes the burst and waits for the socket.
func (w *writing) write() error {
	if w.buf == nil {
		_, err := w.burst.left.WriteTo(w.whole)
		return err
	}
	for _, part := range w.burst.left {
		if _, err := w.buf.Write(part); err != nil {
			return err
		}
	}
	return w.buf.Flush()
}

// flush writes the queued frames as far as the socket accepts them without blocking, and leaves the rest to the writer.
// Writing a frame here wakes two fewer threads.
func (c *conn) flush() {
	w := &c.wr
	if w.now == nil || !w.TryLock() {
		c.out.wake.Notify()
		return
	}
	for len(w.burst.left) == 0 && w.take(c.out) {
		w.sent.Store(true)
		if w.burst.total <= flushBytes {
			w.burst.skip(w.now.Write(w.burst.left)) // a failure recurs when the writer tries
		}
		if len(w.burst.left) == 0 {
			w.burst.reset()
		}
	}
	rest := len(w.burst.left) > 0
	w.Unlock()
	if rest { // otherwise the senders of later frames, which found the lock taken, have woken the writer
		c.out.wake.Notify()
	}
}
