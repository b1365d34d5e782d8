package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// upgrade answers IDENTIFY and switches the stream: first TLS, then compression inside it, with an OK after each step.
// The writer waits for output.mu until it is complete.
func (c *conn) upgrade(ctx context.Context, t *tuning, reply *negotiated) error {
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = t.heartbeat
	o.resizeLocked(t.outputSize)
	if t.heartbeat == 0 {
		_ = o.conn.SetWriteDeadline(time.Time{}) // without heartbeats writes have no deadline
	}
	if reply == nil {
		return o.respondLocked(responseOK)
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	if err := o.respondLocked(text); err != nil {
		return err
	}
	if reply.TLSv1 {
		if err := c.startTLSLocked(ctx); err != nil {
			return err
		}
	}
	return c.startCompressionLocked(reply)
}

// startTLSLocked treats the bytes that were read after IDENTIFY as the beginning of the handshake: clear text never
// becomes a command inside TLS.
func (c *conn) startTLSLocked(ctx context.Context) error {
	early := bytes.Clone(c.in.buffered())
	conn := tls.Server(&earlyConn{Conn: c.raw, early: early}, c.h.opts.TLS)
	_ = c.raw.SetDeadline(time.Now().Add(c.h.opts.LoginTimeout)) // a closed socket fails in the handshake
	err := conn.HandshakeContext(ctx)                            // its context would close the socket before the error frame is sent
	_ = c.raw.SetDeadline(time.Time{})
	c.armed = time.Time{}
	if err != nil {
		c.h.backend.Metrics.Add(metrics.RefusedTCPHandshake, 1)
		return err
	}
	state := conn.ConnectionState()
	c.describe(func(a *about) { a.takeTLS(state) })
	if !c.authed {
		c.begin()
	}
	c.in.reset(creditReader{c, conn})
	c.out.switchLocked(conn, nil)
	c.settled = c.settled && c.takeSeat()
	if s := c.session.Load(); s.LoggedIn() && !c.h.seat(c, s.Identity()) {
		return errTooManyOfUser // of the user in the certificate
	}
	return c.out.respondLocked(responseOK)
}

func (c *conn) startCompressionLocked(reply *negotiated) error {
	conn := c.out.conn
	source := newExpansion(io.MultiReader(bytes.NewReader(bytes.Clone(c.in.buffered())), conn), &c.vouched)
	switch {
	case reply.Snappy:
		c.in.reset(creditReader{c, source.of(s2.NewReader(source, s2.ReaderMaxBlockSize(snappyBlock), s2.ReaderAllocBlock(minSnappyBuffer)))})
		c.out.switchLocked(conn, &snappyWriter{to: conn})
		c.describe(func(a *about) { a.Snappy = true })
	case reply.Deflate:
		c.in.reset(creditReader{c, source.of(flate.NewReader(source))})
		c.out.switchLocked(conn, newDeflate(conn, reply.DeflateLevel, &c.share))
		c.describe(func(a *about) { a.Deflate = true })
	default:
		return nil
	}
	defer c.out.parkLocked()
	return c.out.respondLocked(responseOK)
}

// minSnappyBuffer is the read buffer of a client that has sent nothing yet.
const minSnappyBuffer = 1 << 10

// earlyConn reads the bytes that were received before the upgrade first.
type earlyConn struct {
	net.Conn
	early []byte
}

func (e *earlyConn) Read(p []byte) (int, error) {
	if len(e.early) > 0 {
		n := copy(p, e.early)
		e.early = e.early[n:]
		return n, nil
	}
	return e.Conn.Read(p)
}

// CloseWrite closes the sending direction; the embedded interface hides that method.
func (e *earlyConn) CloseWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
