package protocol

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"

	"github.com/lockstepmq/lockstep/internal/metrics"
)

// upgrade answers IDENTIFY and switches the stream: first TLS, then compression inside it,
// with an OK after each step. It holds output.mu, so the writer waits until it is complete.
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

// startTLSLocked treats the bytes that were read behind IDENTIFY as the beginning of the
// handshake: clear text never becomes a command inside TLS.
func (c *conn) startTLSLocked(ctx context.Context) error {
	early := bytes.Clone(c.in.buffered())
	conn := tls.Server(&earlyConn{Conn: c.raw, early: early}, c.h.opts.TLS)
	_ = c.raw.SetDeadline(time.Now().Add(c.h.opts.loginTimeout())) // a closed socket fails in the handshake
	err := conn.HandshakeContext(ctx)                              // its context would close the socket before the error frame is sent
	_ = c.raw.SetDeadline(time.Time{})
	c.armed = time.Time{}
	if err != nil {
		c.h.backend.Metrics.Refused(metrics.RefusedTCPHandshake)
		return err
	}
	state := conn.ConnectionState()
	c.describe(func(a *about) { a.tls, a.tlsState = true, state })
	if !c.authed {
		c.begin()
	}
	c.in.reset(creditReader{c, conn})
	c.out.switchLocked(conn, nil)
	if c.settled {
		c.takeSeat()
	}
	if s := c.session.Load(); s != nil && s.LoggedIn() && !c.h.seat(c, s.Identity()) {
		return errTooManyOfUser // of the user in the certificate
	}
	return c.out.respondLocked(responseOK)
}

func (c *conn) startCompressionLocked(reply *negotiated) error {
	conn := c.out.conn
	source := &expansion{c: c, src: io.MultiReader(bytes.NewReader(bytes.Clone(c.in.buffered())), conn)}
	switch {
	case reply.Snappy:
		c.in.reset(creditReader{c, source.of(s2.NewReader(source, s2.ReaderMaxBlockSize(snappyBlock), s2.ReaderAllocBlock(minSnappyBuffer)))})
		c.out.switchLocked(conn, &snappyWriter{to: conn})
		c.describe(func(a *about) { a.snappy = true })
	case reply.Deflate:
		c.in.reset(creditReader{c, source.of(flate.NewReader(source))})
		c.out.switchLocked(conn, &deflateWriter{to: conn, level: reply.DeflateLevel})
		c.describe(func(a *about) { a.deflate = true })
	default:
		return nil
	}
	defer c.out.parkLocked()
	return c.out.respondLocked(responseOK)
}

const (
	// freeExpansion is how many bytes a client may have decompressed before one of its commands
	// was allowed.
	freeExpansion = 1 << 20
	// maxExpansion is how many bytes more each compressed byte may become until then.
	maxExpansion = 16
)

var errExpansion = errors.New("protocol: the input decompresses to too much before a command was allowed")

// expansion bounds the work that a client causes by compressed input before one of its
// commands was allowed: a byte of deflate may become a thousand. From then on the bytes count
// against the publish rates. It reads the compressed bytes, and wraps the decompressor.
type expansion struct {
	c    *conn
	src  io.Reader
	in   int64 // compressed bytes, those that the decompressor has read ahead included
	out  int64
	from io.Reader // the decompressor
}

// Read reads compressed bytes.
func (e *expansion) Read(p []byte) (int, error) {
	n, err := e.src.Read(p)
	e.in += int64(n)
	return n, err
}

// of gives the decompressed side.
func (e *expansion) of(decompressor io.Reader) io.Reader {
	e.from = decompressor
	return (*expanded)(e)
}

// expanded is the decompressed side of an expansion.
type expanded expansion

// Read reads decompressed bytes.
func (e *expanded) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if e.out += int64(n); !e.c.vouched && e.out > freeExpansion+maxExpansion*e.in {
		return 0, errExpansion
	}
	return n, err
}

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
