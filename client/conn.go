package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
)

const (
	userAgent    = "lockstep-go/1"
	snappyBlock  = 64 << 10
	deflateLevel = 6
	// maxFrame bounds the frame of a broker that does not speak the protocol, in bytes.
	maxFrame = 64 << 20
	// keptBuffer bounds the buffers that stay with an idle connection, in bytes.
	keptBuffer = 1 << 20
	// writeTimeout bounds one write: a broker reads its clients also while puts wait.
	writeTimeout = 10 * time.Second
	// subscribeTimeout bounds the wait for the answer to SUB.
	subscribeTimeout = 15 * time.Second
	// closeTimeout bounds the wait for the broker's end of a connection that was closed in order.
	closeTimeout = 2 * time.Second
)

// The types of frames.
const (
	frameResponse int32 = 0
	frameError    int32 = 1
	frameMessage  int32 = 2
)

var (
	errSilent  = errors.New("the broker was silent for too long")
	errRetired = errors.New("the connection was given up for another broker")
)

// negotiated is the broker's answer to IDENTIFY, as far as the client uses it.
type negotiated struct {
	MaxRdyCount   int   `json:"max_rdy_count"`
	MaxMsgTimeout int64 `json:"max_msg_timeout"`
	MsgTimeout    int64 `json:"msg_timeout"`
	TLSv1         bool  `json:"tls_v1"`
	Deflate       bool  `json:"deflate"`
	Snappy        bool  `json:"snappy"`
	AuthRequired  bool  `json:"auth_required"`
}

// conn is one connection to a broker. One goroutine reads, the goroutine of writeLoop writes;
// any goroutine may queue bytes.
type conn struct {
	o       *Options
	addr    string
	raw     net.Conn // below TLS
	r       *bufio.Reader
	w       io.Writer
	flush   func() error // nil = w has no buffer
	half    net.Conn     // closes the sending side: raw, or TLS
	limits  negotiated
	silence time.Duration // silence after which the client counts the broker as dead; heartbeats are more frequent
	armed   time.Time     // when the read deadline was set

	mu struct {
		sync.Mutex
		pending  []byte
		appended uint64    // bytes queued since the beginning
		handed   uint64    // bytes of these that were passed to the socket
		since    time.Time // when pending began to fill
		urgent   bool      // pending does not linger
		last     bool      // the writer closes the sending side after the pending bytes
		err      error     // why the connection ended
	}
	wake chan struct{} // capacity 1
	done chan struct{} // closed when err is set
}

// dial connects to a broker, identifies the client and authenticates it.
func (c *Client) dial(ctx context.Context, addr string, msgTimeout time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.DialTimeout)
	defer cancel()
	raw, err := c.o.Dialer(ctx, "tcp", addr)
	if err != nil {
		return nil, &Error{Op: "connect", Broker: addr, kinds: []error{ErrUnreachable}, cause: err}
	}
	n := &conn{o: &c.o, addr: addr, raw: raw, r: bufio.NewReaderSize(raw, 32<<10), w: raw, half: raw, silence: c.o.Heartbeat * 5 / 2, wake: make(chan struct{}, 1), done: make(chan struct{})}
	release := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err = n.open(ctx, msgTimeout)
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		c.o.Observer.Connected(addr)
		return n, nil
	}
	_ = raw.Close()
	if answered := (*Error)(nil); errors.As(err, &answered) {
		return nil, answered
	}
	if ctx.Err() != nil {
		err = ctx.Err() // the reason why the socket was closed
	}
	return nil, &Error{Op: "connect", Broker: addr, kinds: []error{ErrUnreachable}, cause: err}
}

// open speaks the beginning of the protocol.
func (n *conn) open(ctx context.Context, msgTimeout time.Duration) error {
	o := n.o
	hostname, _ := os.Hostname() // informational
	body, err := json.Marshal(map[string]any{
		"client_id": o.ClientID, "hostname": hostname, "user_agent": userAgent, "feature_negotiation": true,
		"heartbeat_interval": o.Heartbeat.Milliseconds(), "tls_v1": o.TLS != nil,
		"snappy": o.Compression == Snappy, "deflate": o.Compression == Deflate, "deflate_level": deflateLevel,
		"msg_timeout": msgTimeout.Milliseconds(), "extend_support": true,
	})
	if err != nil {
		return err
	}
	b := append([]byte("  V2IDENTIFY\n"), binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	if _, err := n.raw.Write(append(b, body...)); err != nil {
		return err
	}
	reply, err := n.answer()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply, &n.limits); err != nil {
		return fmt.Errorf("the answer to IDENTIFY is no JSON object: %w", err)
	}
	if err := n.upgrade(ctx); err != nil {
		return err
	}
	if o.Token == "" || !n.limits.AuthRequired {
		return nil
	}
	b = append([]byte("AUTH\n"), binary.BigEndian.AppendUint32(nil, uint32(len(o.Token)))...)
	if err := n.write(append(b, o.Token...)); err != nil {
		return err
	}
	_, err = n.answer()
	return err
}

// upgrade starts TLS and compression as requested, or returns an error: the client never
// sends data without the TLS or the compression that the application requires.
func (n *conn) upgrade(ctx context.Context) error {
	o := n.o
	refused := func(what string) error {
		return &Error{Op: "connect", Broker: n.addr, Text: "the broker does not offer " + what, kinds: []error{ErrInvalid}}
	}
	if o.TLS != nil {
		if !n.limits.TLSv1 {
			return refused("TLS")
		}
		config := o.TLS.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(n.addr)
		}
		secure := tls.Client(n.raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		n.r, n.w, n.half = bufio.NewReaderSize(secure, 32<<10), secure, secure
		if err := n.expectOK(); err != nil {
			return err
		}
	}
	switch o.Compression {
	case Snappy:
		if !n.limits.Snappy {
			return refused("snappy")
		}
		w := s2.NewWriter(n.w, s2.WriterSnappyCompat(), s2.WriterConcurrency(1), s2.WriterBlockSize(snappyBlock))
		n.r, n.w, n.flush = bufio.NewReader(s2.NewReader(n.r, s2.ReaderMaxBlockSize(snappyBlock))), w, w.Flush
	case Deflate:
		if !n.limits.Deflate {
			return refused("deflate")
		}
		w, err := flate.NewWriter(n.w, deflateLevel)
		if err != nil {
			return err
		}
		n.r, n.w, n.flush = bufio.NewReader(flate.NewReader(n.r)), w, w.Flush
	default:
		return nil
	}
	return n.expectOK()
}

func (n *conn) expectOK() error {
	text, err := n.answer()
	if err == nil && string(text) != "OK" {
		err = fmt.Errorf("the broker answered %q, want OK", text)
	}
	return err
}

// answer reads the next response; an error frame is an *Error.
func (n *conn) answer() ([]byte, error) {
	for {
		kind, data, err := n.frame()
		switch {
		case err != nil:
			return nil, err
		case kind == frameError:
			// Nothing was published: the class of the fate does not apply.
			return nil, &Error{Op: "connect", Broker: n.addr, Text: string(data), kinds: n.o.judge(string(data)).kinds[1:]}
		case kind == frameResponse && string(data) == "_heartbeat_":
			if err := n.write([]byte("NOP\n")); err != nil {
				return nil, err
			}
		case kind == frameResponse:
			return data, nil
		default:
			return nil, fmt.Errorf("a frame of type %d came before the answer", kind)
		}
	}
}

// frame reads one frame. The data belongs to the caller.
func (n *conn) frame() (kind int32, data []byte, err error) {
	head, err := n.r.Peek(8)
	if err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head)
	kind = int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	if _, err := n.r.Discard(8); err != nil {
		return 0, nil, err
	}
	if kind == frameResponse && size == 4+2 { // the answer to a put
		if ok, err := n.r.Peek(2); err == nil && string(ok) == "OK" {
			_, err := n.r.Discard(2)
			return kind, responseOK, err
		}
	}
	data = make([]byte, size-4)
	_, err = io.ReadFull(n.r, data)
	return kind, data, err
}

var responseOK = []byte("OK")

// next reads one frame of a connection that is in use, and answers heartbeats.
func (n *conn) next() (kind int32, data []byte, err error) {
	for {
		n.arm()
		kind, data, err = n.frame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errSilent
		}
		if err != nil || kind != frameResponse || string(data) != "_heartbeat_" {
			return kind, data, err
		}
		n.queue([]byte("NOP\n"), true)
	}
}

// arm renews the read deadline. Each renewal costs a system call, so it is renewed when a
// quarter of it is over.
func (n *conn) arm() {
	now := time.Now()
	if now.Sub(n.armed) > n.silence/4 {
		n.armed = now
		_ = n.raw.SetReadDeadline(now.Add(n.silence)) // a closed socket fails at the read
	}
}

// queue appends bytes for the writer. It reports false if the connection has ended.
func (n *conn) queue(b []byte, urgent bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.queueLocked(urgent, len(b), func(to []byte) []byte { return append(to, b...) })
	return ok
}

// queueLocked is queue, with the position of the first byte in the stream.
func (n *conn) queueLocked(urgent bool, size int, appendTo func([]byte) []byte) (at uint64, ok bool) {
	if n.mu.err != nil {
		return 0, false
	}
	if len(n.mu.pending) == 0 {
		n.mu.since = time.Now()
	}
	at = n.mu.appended
	n.mu.pending = appendTo(n.mu.pending)
	n.mu.appended += uint64(size)
	n.mu.urgent = n.mu.urgent || urgent
	signal(n.wake)
	return at, true
}

// signal wakes the receiver of a channel with capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// writeLoop writes the queued bytes until the connection ends. Bytes wait up to linger for
// more, unless there are batch of them.
func (n *conn) writeLoop(linger time.Duration, batch int) {
	var spare []byte
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-n.wake:
		case <-n.done:
			return
		}
		for {
			if wait := n.lingers(linger, batch); wait > 0 {
				timer.Reset(wait)
				select {
				case <-timer.C:
				case <-n.wake:
					continue
				case <-n.done:
					return
				}
			}
			b := n.take(spare)
			if len(b) == 0 {
				if n.closesWrite() {
					return
				}
				spare = b
				break
			}
			if err := n.write(b); err != nil {
				n.fail(err)
				return
			}
			if spare = b[:0]; cap(spare) > keptBuffer {
				spare = nil
			}
		}
	}
}

// finish lets the writer close the sending side when all queued bytes are written. The
// broker closes the connection when it has read them.
func (n *conn) finish() {
	n.mu.Lock()
	n.mu.last = true
	n.mu.Unlock()
	signal(n.wake)
}

// closesWrite closes the sending side if finish was called.
func (n *conn) closesWrite() bool {
	n.mu.Lock()
	last := n.mu.last
	n.mu.Unlock()
	if half, ok := n.half.(interface{ CloseWrite() error }); last && ok {
		_ = half.CloseWrite() // the reader finds a broken connection
	}
	return last
}

// lingers returns how much longer the queued bytes wait for further bytes.
func (n *conn) lingers(linger time.Duration, batch int) time.Duration {
	if linger <= 0 {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.urgent || len(n.mu.pending) == 0 || len(n.mu.pending) >= batch {
		return 0
	}
	return linger - time.Since(n.mu.since)
}

// take returns the queued bytes; they count as handed to the socket from now on.
func (n *conn) take(spare []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.mu.pending
	n.mu.pending, n.mu.urgent = spare[:0], false
	n.mu.handed = n.mu.appended
	return b
}

// write writes and flushes; one goroutine at a time calls it.
func (n *conn) write(b []byte) error {
	_ = n.raw.SetWriteDeadline(time.Now().Add(writeTimeout)) // a closed socket fails at the write
	if _, err := n.w.Write(b); err != nil {
		return err
	}
	if n.flush != nil {
		return n.flush()
	}
	return nil
}

// fail ends the connection; the first reason stays.
func (n *conn) fail(err error) {
	n.mu.Lock()
	first := n.mu.err == nil
	if first {
		n.mu.err = err
	}
	n.mu.Unlock()
	if first {
		close(n.done)
	}
	_ = n.raw.Close()
}

// reason is why the connection ended.
func (n *conn) reason() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.err
}

// neverSent reports whether the bytes from position at on were not passed to the socket.
func (n *conn) neverSent(at uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return at >= n.mu.handed
}
