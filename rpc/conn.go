package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// conn is one connection. Its reader is the goroutine that calls run after the handshake. Its writer
// (write.go) is a goroutine that run starts and awaits.
type conn struct {
	t        *Transport
	raw      net.Conn // closed to end the connection; not closed through TLS, which would wait
	nc       net.Conn // raw or TLS over it
	in       *frameReader
	out      *outbox
	wr       writing
	dialled  bool
	address  string // of a dialled one
	self     Hello  // as sent to the peer
	peer     Hello
	lastRead atomic.Int64 // nanoseconds on the transport's clock; written by the reader
	traffic  *traffic     // counters of the peer; nil until run

	calls calls         // on a dialled connection: requests that wait for their response
	slots chan struct{} // accepted: requests being served

	done  chan struct{} // closed by close
	once  sync.Once
	cause error // the reason of the end, written once before done is closed
}

func (t *Transport) newConn(raw net.Conn, dialled bool) *conn {
	c := &conn{
		t: t, raw: raw, nc: raw, dialled: dialled,
		self:  *t.self.Load(),
		out:   newOutbox(t.o.windows),
		slots: make(chan struct{}, t.o.maxServe),
		done:  make(chan struct{}),
	}
	c.lastRead.Store(t.now())
	return c
}

// Read notes the time at which bytes arrive.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.nc.Read(b)
	if n > 0 {
		c.lastRead.Store(c.t.now())
		if c.traffic != nil {
			c.traffic.received.Add(uint64(n))
		}
	}
	return n, err
}

// close ends the connection; the first reason is recorded.
func (c *conn) close(why error) {
	c.once.Do(func() {
		c.cause = why
		close(c.done)
		c.out.close()
		_ = c.raw.Close() // no orderly close is needed
	})
}

func (c *conn) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// checked reports whether both sides send checksums of payloads.
func (c *conn) checked() bool { return c.self.Features&c.peer.Features&featurePayloadCRC != 0 }

// run delivers arriving frames to p until the connection ends, and returns when the writer and all requests being
// served have also ended. The connection is detached from p before that, because a request may take a long time.
func (c *conn) run(ctx context.Context, p *peer) error {
	ctx, cancel := context.WithCancel(ctx)
	var own sync.WaitGroup
	c.traffic, c.wr.bytes = &p.traffic, &p.traffic.sent
	c.wr.open(c.nc, c.checked())
	own.Go(c.write)
	p.attach(c)
	c.close(c.read(ctx, p, &own))
	if errors.Is(c.cause, errChecksum) {
		c.t.counts.corrupt.Add(1)
		p.log.WithError(c.cause).WithField("remote", c.raw.RemoteAddr()).
			Warn("corrupt frame from a peer, connection closed: the network or the hardware changes bytes")
	}
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
			err = p.deliver(c, Received{a.class, a.header, a.payload, c.in.r.Buffered() > 0})
			c.t.o.Handler.Drained()
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
