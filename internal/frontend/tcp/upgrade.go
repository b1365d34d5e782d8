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
		_ = o.conn.SetWriteDeadline(time.Time{}) // without heartbeats, writes have no deadline
	}
	if reply == nil {
		return o.sendLocked(frameResponse, responseOK)
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	if err := o.sendLocked(frameResponse, text); err != nil {
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
	early := bytes.NewReader(bytes.Clone(c.in.buffered()))
	conn := tls.Server(&earlyConn{c.raw, io.MultiReader(early, c.raw)}, c.h.opts.TLS)
	_ = c.raw.SetDeadline(time.Now().Add(c.h.opts.LoginTimeout)) // a closed socket fails in the handshake
	err := conn.HandshakeContext(ctx)                            // a timeout in ctx would close the socket before the error frame is sent
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
		return errTooManyOfUser // too many connections of the user in the certificate
	}
	return c.out.sendLocked(frameResponse, responseOK)
}

func (c *conn) startCompressionLocked(reply *negotiated) error {
	conn := c.out.conn
	source := &counted{Reader: io.MultiReader(bytes.NewReader(bytes.Clone(c.in.buffered())), conn)}
	switch {
	case reply.Snappy:
		plain := s2.NewReader(source, s2.ReaderMaxBlockSize(snappyBlock), s2.ReaderAllocBlock(minSnappyBuffer))
		c.in.reset(creditReader{c, &expansion{from: plain, compressed: source, vouched: &c.vouched}})
		c.out.switchLocked(conn, &snappyWriter{to: conn})
		c.describe(func(a *about) { a.Snappy = true })
	case reply.Deflate:
		c.in.reset(creditReader{c, &expansion{from: flate.NewReader(source), compressed: source, vouched: &c.vouched}})
		c.out.switchLocked(conn, &deflateWriter{to: conn, level: reply.DeflateLevel, share: &c.share})
		c.describe(func(a *about) { a.Deflate = true })
	default:
		return nil
	}
	defer c.out.parkLocked()
	return c.out.sendLocked(frameResponse, responseOK)
}

// minSnappyBuffer is the read buffer of a client that has sent nothing yet.
const minSnappyBuffer = 1 << 10

// earlyConn is a connection that first returns the bytes received before the upgrade.
type earlyConn struct {
	net.Conn
	in io.Reader // the early bytes, then those of Conn
}

func (e *earlyConn) Read(p []byte) (int, error) { return e.in.Read(p) }

// CloseWrite closes the sending direction; the embedded interface hides that method.
func (e *earlyConn) CloseWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
