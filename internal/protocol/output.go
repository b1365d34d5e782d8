package protocol

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/nowait"
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
	// unbuffered is the size that a client is told which wants no buffer.
	unbuffered = 1
)

var (
	responseOK        = []byte("OK")
	responseHeartbeat = []byte("_heartbeat_")
	responseCloseWait = []byte("CLOSE_WAIT")
)

// output is the way to the client: a buffer, maybe a compressor, maybe TLS, the
// socket. mu is held around every use.
type output struct {
	mu       sync.Mutex
	conn     net.Conn
	buf      *bufio.Writer // nil = nothing was written since the last flush
	size     int           // of buf
	buffers  *buffers
	sink     io.Writer      // what buf writes to: conn or the compressor
	now      *nowait.Writer // of conn; nil = none, or what it is sent is compressed
	kept     bool           // buf has the rest of what now did not take
	compress flusher        // nil = none
	deadline time.Duration  // of one write; 0 = none
	header   [messageHeader]byte
	format   format
}

type flusher interface {
	io.Writer
	Flush() error
}

// buffers lends output buffers of the default size: ten thousand quiet
// connections share a few.
type buffers struct{ pool sync.Pool }

func newOutput(conn net.Conn, deadline time.Duration, shared *buffers) *output {
	o := &output{deadline: deadline, size: defaultOutputBuffer, buffers: shared}
	o.switchLocked(conn, nil)
	return o
}

// switchLocked sends through another connection or compressor from now on.
// What was written must have been flushed.
func (o *output) switchLocked(conn net.Conn, compress flusher) {
	o.conn, o.compress, o.sink, o.buf, o.now = conn, compress, io.Writer(conn), nil, nil
	if compress != nil {
		o.sink = compress
	} else {
		o.now = nowait.New(conn)
	}
}

// resizeLocked changes the size of the buffer. What was written must have been
// flushed. Who wants none gets the default: a burst leaves at its end anyway, and
// header and body of a message are then not two writes.
func (o *output) resizeLocked(size int) {
	if size == unbuffered {
		size = defaultOutputBuffer
	}
	o.size, o.buf = size, nil
}

// borrowLocked makes sure that there is a buffer.
func (o *output) borrowLocked() {
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

// returnLocked gives the empty buffer back.
func (o *output) returnLocked() {
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

func (o *output) messageLocked(d *edge.Delivery) error {
	if o.format != (format{}) {
		return o.extendedLocked(d)
	}
	return o.writeLocked(o.headLocked(d, 0), d.Message.Body)
}

// headLocked encodes what comes before the body, or before extra bytes and the
// body.
func (o *output) headLocked(d *edge.Delivery, extra int) []byte {
	h := o.header[:]
	binary.BigEndian.PutUint32(h, uint32(messageHeader-4+extra+len(d.Message.Body)))
	binary.BigEndian.PutUint32(h[4:], uint32(frameMessage))
	binary.BigEndian.PutUint64(h[8:], uint64(d.Message.Time))
	binary.BigEndian.PutUint16(h[16:], d.Message.Attempts)
	copy(h[18:], d.ID[:])
	return h
}

func (o *output) writeLocked(header, body []byte) error {
	o.borrowLocked()
	if o.buf.Available() < len(header)+len(body) {
		o.armLocked() // this write reaches the socket
	}
	if _, err := o.buf.Write(header); err != nil {
		return err
	}
	_, err := o.buf.Write(body)
	return err
}

// frameOK is what most puts are answered.
var frameOK = append([]byte{0, 0, 0, 6, 0, 0, 0, byte(frameResponse)}, responseOK...)

// okNowLocked writes OK without waiting for the socket. What that does not take is in
// the buffer then, and the writer has to flush it. Nothing may be in the buffer before.
func (o *output) okNowLocked() error {
	o.armLocked() // a deadline that has passed would fail it
	n := o.now.Write(net.Buffers{frameOK})
	if n == len(frameOK) {
		return nil
	}
	o.kept = true
	return o.writeLocked(frameOK[n:], nil)
}

// flushLocked sends everything that is buffered.
func (o *output) flushLocked() error {
	o.kept = false
	if o.buf == nil {
		return nil
	}
	o.armLocked()
	if err := o.buf.Flush(); err != nil {
		return err
	}
	o.returnLocked()
	if o.compress != nil {
		return o.compress.Flush()
	}
	return nil
}

// respondLocked writes one response and flushes.
func (o *output) respondLocked(data []byte) error {
	if err := o.frameLocked(frameResponse, data); err != nil {
		return err
	}
	return o.flushLocked()
}

func (o *output) armLocked() {
	if o.deadline > 0 {
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.deadline)) // a closed socket fails at the write
	}
}

// closeWriteLocked ends the client's input but lets its last bytes come in, so
// that a reset does not overtake the error frame.
func (o *output) closeWriteLocked() {
	if half, ok := o.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the connection is closed next anyway
	}
}
