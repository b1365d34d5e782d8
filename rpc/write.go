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

	"github.com/lockstepmq/lockstep/internal/nowait"
)

// flushBytes is how much one flush writes at most: a longer copy to the socket is
// better not done by who has other things to do.
const flushBytes = 64 << 10

// writing is the way out of a connection: whoever has the lock takes bursts from
// the outbox and writes them. That is the connection's writer, which waits for the
// socket, or who flushes, who never does.
type writing struct {
	sync.Mutex
	burst burst
	whole io.Writer      // TCP: for writev
	buf   *bufio.Writer  // under TLS, which has no writev, small slices share a record
	now   *nowait.Writer // nil = a flush cannot write here
	sent  atomic.Bool    // since the last tick of the heartbeat
}

// open is called before anybody writes.
func (w *writing) open(nc net.Conn) {
	if _, ok := nc.(*tls.Conn); ok {
		w.buf = bufio.NewWriterSize(nc, readBufferBytes)
		return
	}
	w.whole, w.now = nc, nowait.New(nc)
}

// write sends what waits, one writev per burst, and heartbeats when nothing does.
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
			runtime.Gosched() // who is ready to run adds to the burst first
		case <-tick.C:
			if !c.wr.sent.Swap(false) {
				_ = c.out.push(newOutFrame(kindHeartbeat, 0, nil)) // fails only when closed
			}
		}
	}
}

// drain writes until nothing waits, first what a flush has left.
func (c *conn) drain() error {
	w := &c.wr
	w.Lock()
	defer w.Unlock()
	for len(w.burst.left) > 0 || c.out.take(&w.burst) {
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

// flush writes what waits, as far as that takes no waiting, and leaves the rest to
// the writer. Two threads less have to wake up for a frame than if the writer wrote it.
func (c *conn) flush() {
	w := &c.wr
	if w.now == nil || !w.TryLock() {
		c.out.ring()
		return
	}
	for len(w.burst.left) == 0 && c.out.take(&w.burst) {
		w.sent.Store(true)
		if w.burst.total <= flushBytes {
			w.burst.skip(w.now.Write(w.burst.left)) // what fails now fails again when the writer tries
		}
		if len(w.burst.left) == 0 {
			w.burst.reset()
		}
	}
	rest := len(w.burst.left) > 0
	w.Unlock()
	if rest { // what others queued meanwhile they have rung for
		c.out.ring()
	}
}
