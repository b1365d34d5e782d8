package protocol

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
)

// handshakeTimeout bounds the TLS handshake.
const handshakeTimeout = 5 * time.Second

// snappyBlock is the largest block of the framed snappy format.
const snappyBlock = 64 << 10

// upgrade answers IDENTIFY and switches the stream: TLS first, compression
// inside it, an OK after each step. The writer is kept out until it is done.
func (c *conn) upgrade(ctx context.Context, t *tuning, reply *negotiated) error {
	o := c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = t.heartbeat
	o.resizeLocked(t.outputSize)
	if t.heartbeat == 0 {
		_ = o.conn.SetWriteDeadline(time.Time{}) // heartbeats are off, and deadlines with them
	}
	if reply == nil {
		if err := o.respondLocked(responseOK); err != nil {
			return err
		}
		return nil
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

// startTLSLocked takes what was read too far as the beginning of the handshake:
// nothing sent in the clear is ever taken for a command sent inside TLS.
func (c *conn) startTLSLocked(ctx context.Context) error {
	early := bytes.Clone(c.in.buffered())
	conn := tls.Server(&earlyConn{Conn: c.raw, early: early}, c.h.opts.TLS)
	_ = c.raw.SetDeadline(time.Now().Add(handshakeTimeout)) // a closed socket fails in the handshake
	err := conn.HandshakeContext(ctx)                       // whose context would close the socket before the error is told
	_ = c.raw.SetDeadline(time.Time{})
	c.armed = time.Time{}
	if err != nil {
		return err
	}
	state := conn.ConnectionState()
	c.describe(func(a *about) { a.tls, a.tlsState = true, state })
	c.in.reset(nudging{c, conn})
	c.out.switchLocked(conn, nil)
	return c.out.respondLocked(responseOK)
}

func (c *conn) startCompressionLocked(reply *negotiated) error {
	conn := c.out.conn
	source := io.MultiReader(bytes.NewReader(bytes.Clone(c.in.buffered())), conn)
	switch {
	case reply.Snappy:
		w := s2.NewWriter(conn, s2.WriterSnappyCompat(), s2.WriterConcurrency(1), s2.WriterBlockSize(snappyBlock))
		c.in.reset(nudging{c, s2.NewReader(source, s2.ReaderMaxBlockSize(snappyBlock))})
		c.out.switchLocked(conn, w)
		c.describe(func(a *about) { a.snappy = true })
	case reply.Deflate:
		w, err := flate.NewWriter(conn, reply.DeflateLevel)
		if err != nil {
			return err
		}
		c.in.reset(nudging{c, flate.NewReader(source)})
		c.out.switchLocked(conn, w)
		c.describe(func(a *about) { a.deflate = true })
	default:
		return nil
	}
	return c.out.respondLocked(responseOK)
}

// earlyConn reads what was received before the upgrade first.
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

// CloseWrite passes the half-close on, which the embedded interface hides.
func (e *earlyConn) CloseWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
