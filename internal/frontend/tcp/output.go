package tcp

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

type frameType uint32

const (
	frameResponse frameType = 0
	frameError    frameType = 1
	frameMessage  frameType = 2
)

const (
	frameHeader   = 8                        // size, type
	messageHeader = frameHeader + 8 + 2 + 16 // timestamp, attempts, id
	// defaultOutputBuffer is the size before and without IDENTIFY.
	defaultOutputBuffer = 16 << 10
	// unbuffered is the size in the reply to a client that requests no buffer.
	unbuffered = 1
)

var (
	responseOK        = []byte("OK")
	responseHeartbeat = []byte("_heartbeat_")
	responseCloseWait = []byte("CLOSE_WAIT")
)

// output is the write side of a connection: a buffer, an optional compressor, optional TLS, and the socket. Each use
// locks mu.
type output struct {
	mu       sync.Mutex
	conn     net.Conn
	buf      *bufio.Writer // nil = empty since the last flush
	size     int           // of buf
	buffers  *buffers
	sink     io.Writer                      // target of buf: conn or the compressor
	direct   *concurrency.NonblockingWriter // of conn; nil if there is none, or the stream is compressed
	unsent   bool                           // buf has bytes that direct did not take
	compress flusher                        // nil = none
	deadline time.Duration                  // of one write; 0 = none
	header   [messageHeader]byte
	format   format
}

type flusher interface {
	io.Writer
	Flush() error
}

// buffers pools output buffers of the default size: ten thousand idle connections share a few of them.
type buffers struct{ pool sync.Pool }

func newOutput(conn net.Conn, deadline time.Duration, shared *buffers) *output {
	o := &output{deadline: deadline, size: defaultOutputBuffer, buffers: shared}
	o.switchLocked(conn, nil)
	return o
}

// switchLocked switches to another connection or compressor, after a flush. It releases the memory of the previous
// compressor: a client may repeat IDENTIFY.
func (o *output) switchLocked(conn net.Conn, compress flusher) {
	o.parkLocked()
	o.conn, o.compress, o.sink, o.buf, o.direct = conn, compress, io.Writer(conn), nil, nil
	if compress != nil {
		o.sink = compress
	} else {
		o.direct = concurrency.NewNonblockingWriter(conn)
	}
}

// resizeLocked changes the size of the buffer, after a flush. A client that requests no buffer gets the default size: a
// burst is flushed at its end anyway, and with a buffer the header and the body of a message are one write.
func (o *output) resizeLocked(size int) {
	if size == unbuffered {
		size = defaultOutputBuffer
	}
	o.size, o.buf = size, nil
}

func (o *output) takeBufferLocked() {
	if o.buf != nil {
		return
	}
	if o.size == defaultOutputBuffer {
		if b, ok := o.buffers.pool.Get().(*bufio.Writer); ok {
			b.Reset(o.sink)
			o.buf = b
			return
		}
	}
	o.buf = bufio.NewWriterSize(o.sink, o.size)
}

func (o *output) returnBufferLocked() {
	if o.size == defaultOutputBuffer {
		o.buf.Reset(nil)
		o.buffers.pool.Put(o.buf)
		o.buf = nil
	}
}

func (o *output) frameLocked(kind frameType, data []byte) error {
	h := o.header[:frameHeader]
	binary.BigEndian.PutUint32(h, uint32(4+len(data)))
	binary.BigEndian.PutUint32(h[4:], uint32(kind))
	return o.writeLocked(h, data)
}

func (o *output) messageLocked(d *api.Delivery) error {
	if o.format != (format{}) {
		return o.extendedLocked(d)
	}
	return o.writeLocked(o.headLocked(d, 0), d.Message.Body)
}

// headLocked encodes the part of a frame before the body, or before the extra bytes and the body.
func (o *output) headLocked(d *api.Delivery, extra int) []byte {
	h := o.header[:]
	binary.BigEndian.PutUint32(h, uint32(messageHeader-4+extra+len(d.Message.Body)))
	binary.BigEndian.PutUint32(h[4:], uint32(frameMessage))
	binary.BigEndian.PutUint64(h[8:], uint64(d.Message.Time))
	binary.BigEndian.PutUint16(h[16:], d.Message.Attempts)
	copy(h[18:], d.ID[:])
	return h
}

func (o *output) writeLocked(header, body []byte) error {
	o.takeBufferLocked()
	if o.buf.Available() < len(header)+len(body) {
		o.armLocked() // the buffer is full: this write reaches the socket
	}
	if _, err := o.buf.Write(header); err != nil {
		return err
	}
	_, err := o.buf.Write(body)
	return err
}

var frameOK = append([]byte{0, 0, 0, 6, 0, 0, 0, byte(frameResponse)}, responseOK...)

// okDirectLocked writes OK without blocking. The buffer must be empty before; bytes that the socket does not take
// remain in it for the writer.
func (o *output) okDirectLocked() error {
	o.armLocked() // an expired deadline would fail the write
	n := o.direct.Write(net.Buffers{frameOK})
	if n == len(frameOK) {
		return nil
	}
	o.unsent = true
	return o.writeLocked(frameOK[n:], nil)
}

func (o *output) flushLocked() error {
	o.unsent = false
	if o.buf == nil {
		return nil
	}
	o.armLocked()
	if err := o.buf.Flush(); err != nil {
		return err
	}
	o.returnBufferLocked()
	if o.compress != nil {
		return o.compress.Flush()
	}
	return nil
}

// sendLocked writes one frame and flushes.
func (o *output) sendLocked(kind frameType, data []byte) error {
	if err := o.frameLocked(kind, data); err != nil {
		return err
	}
	return o.flushLocked()
}

func (o *output) armLocked() {
	if o.deadline > 0 {
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.deadline)) // a closed socket fails at the write
	}
}

// parkLocked releases the memory of the compressor until the next write. An idle client would otherwise occupy up to a
// megabyte, even before its login.
func (o *output) parkLocked() {
	if p, ok := o.compress.(interface{ park() }); ok {
		p.park()
	}
}

// park is parkLocked at the end of the connection.
func (o *output) park() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parkLocked()
}

// closeWriteLocked closes only the sending direction: a full close might reset the connection before the client has
// read the error frame.
func (o *output) closeWriteLocked() {
	if half, ok := o.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the connection is closed next in any case
	}
}
