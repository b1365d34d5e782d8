package rpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection after its handshake. Its reader is whoever calls run;
// its writer is a goroutine that run starts and awaits.
type conn struct {
	t       *Transport
	raw     net.Conn // closed to end everything; never through TLS, which would wait
	nc      net.Conn // raw or TLS over it
	in      *frameReader
	out     *outbox
	dialled bool
	address string // dialled: where to
	self    Hello  // as told to the peer
	peer    Hello
	heard   atomic.Int64 // nanoseconds on the transport's clock; written by the reader

	calls calls         // dialled: requests that wait for their response
	slots chan struct{} // accepted: requests being served

	done  chan struct{} // closed by close
	once  sync.Once
	cause error // why, written once before done is closed
}

func (t *Transport) newConn(raw net.Conn, dialled bool) *conn {
	c := &conn{
		t: t, raw: raw, nc: raw, dialled: dialled,
		self:  *t.self.Load(),
		out:   newOutbox(t.o.Windows),
		slots: make(chan struct{}, t.o.MaxServe),
		done:  make(chan struct{}),
	}
	c.heard.Store(t.now())
	return c
}

// Read stamps the time of whatever comes.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.nc.Read(b)
	if n > 0 {
		c.heard.Store(c.t.now())
	}
	return n, err
}

// close ends the connection for the given reason; the first reason stays.
func (c *conn) close(why error) {
	c.once.Do(func() {
		c.cause = why
		close(c.done)
		c.out.close()
		_ = c.raw.Close() // nothing is owed to the other side
	})
}

// run belongs to p while it reads: until the connection ends it hands over what
// arrives. It returns when the writer and all requests being served have ended
// too; p has forgotten the connection before that, for a request may take long.
func (c *conn) run(ctx context.Context, p *peer) error {
	ctx, cancel := context.WithCancel(ctx)
	var own sync.WaitGroup
	own.Go(c.write)
	p.attach(c)
	c.close(c.read(ctx, p, &own))
	p.detach(c)
	cancel()
	own.Wait()
	return c.cause
}

func (c *conn) read(ctx context.Context, p *peer, own *sync.WaitGroup) error {
	for {
		a, err := c.in.next()
		if err != nil {
			return err
		}
		switch {
		case a.kind == kindHeartbeat:
		case a.kind == kindFrame && !c.dialled:
			err = p.deliver(c, Received{a.class, a.header, a.payload})
		case a.kind == kindRequest && !c.dialled:
			err = c.admit(ctx, a, own)
		case a.kind == kindResponse && c.dialled:
			err = c.calls.complete(a)
		default:
			err = malformed("kind %d, dialled here: %t", a.kind, c.dialled)
		}
		if err != nil {
			return err
		}
	}
}

// write sends what waits, one writev per burst, and heartbeats when nothing does.
// Started by run, ends when the connection is closed; owns the burst.
func (c *conn) write() {
	tick := time.NewTicker(c.t.o.Times.Heartbeat)
	defer tick.Stop()
	w := newBurstWriter(c.nc)
	var b burst
	busy := false // something was sent since the last tick
	for {
		for c.out.take(&b) {
			if err := w.write(&b); err != nil {
				c.close(err)
				return
			}
			b.reset()
			busy = true
		}
		select {
		case <-c.done:
			return
		case <-c.out.wake:
			runtime.Gosched() // who is ready to run adds to the burst first
		case <-tick.C:
			if !busy {
				_ = c.out.push(newOutFrame(kindHeartbeat, 0, nil)) // fails only when closed
			}
			busy = false
		}
	}
}

// burstWriter writes bursts: by writev on TCP; under TLS, which has no writev,
// through a buffer, so that small slices share a record.
type burstWriter struct {
	w   io.Writer
	buf *bufio.Writer // nil on TCP
}

func newBurstWriter(nc net.Conn) burstWriter {
	if _, ok := nc.(*tls.Conn); ok {
		return burstWriter{buf: bufio.NewWriterSize(nc, readBufferBytes)}
	}
	return burstWriter{w: nc}
}

func (w burstWriter) write(b *burst) error {
	if w.buf == nil {
		b.left = b.iov
		_, err := b.left.WriteTo(w.w)
		return err
	}
	for _, part := range b.iov {
		if _, err := w.buf.Write(part); err != nil {
			return err
		}
	}
	return w.buf.Flush()
}
