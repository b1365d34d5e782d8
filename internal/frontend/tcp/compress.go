package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// The compressors are for connections that are idle most of the time. A connection whose output is flushed and parked
// holds no memory of a compressor. If there is no memory for a compressor (package limits), the stream stays valid but
// becomes larger.

// The framed snappy format: chunks of a type, a length of 3 bytes and a checksum.
const (
	// snappyBlock is the largest block.
	snappyBlock     = 64 << 10
	snappyStart     = "\xff\x06\x00\x00sNaPpY"
	snappyHead      = 4 + 4
	chunkCompressed = 0x00
	chunkPlain      = 0x01
)

// snappyWriter compresses each write separately. Unlike the library's writer it uses no memory between writes, because
// output.buf already gathers small writes.
type snappyWriter struct {
	to      io.Writer
	started bool
}

var snappyBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, len(snappyStart)+snappyHead+s2.MaxEncodedLen(snappyBlock))
	return &b
}}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (w *snappyWriter) Write(p []byte) (n int, err error) {
	pooled := snappyBuffers.Get().(*[]byte)
	defer snappyBuffers.Put(pooled)
	for n < len(p) {
		block := p[n:min(len(p), n+snappyBlock)]
		b := (*pooled)[:0]
		if !w.started {
			b = append(b, snappyStart...)
		}
		if _, err := w.to.Write(snappyChunk(b, block)); err != nil {
			return n, err
		}
		w.started = true
		n += len(block)
	}
	return n, nil
}

// snappyChunk appends a block to b, whose capacity suffices. A block that would not shrink by an eighth is appended as
// it is.
func snappyChunk(b, block []byte) []byte {
	sum := crc32.Checksum(block, castagnoli)
	sum = (sum>>15 | sum<<17) + 0xa282ead8 // the mask of the format
	head := len(b)
	b = append(b, make([]byte, snappyHead)...)
	data := s2.EncodeSnappy(b[len(b):cap(b)], block)
	kind := chunkCompressed
	if len(data) >= len(block)-len(block)/8 {
		kind, data = chunkPlain, block
	}
	b = append(b, data...) // onto itself, if it is compressed
	binary.LittleEndian.PutUint32(b[head:], uint32(4+len(data))<<8|uint32(kind))
	binary.LittleEndian.PutUint32(b[head+4:], sum)
	return b
}

// Flush does nothing: every write is complete.
func (w *snappyWriter) Flush() error { return nil }

// deflateWriter has a compressor only while the client is busy. After a flush the stream is at the boundary of a block
// and of a byte. So another compressor can continue the stream, without reference to anything sent before.
type deflateWriter struct {
	to    io.Writer
	level int
	share *atomic.Pointer[limits.Share] // the client's current share, which pays for the next compressor
	paid  limits.Share                  // the share in which the memory of z is reserved
	z     *flate.Writer                 // nil = parked
}

const deflateBytes = 5 << 18

// deflaters pools the compressors of each level.
var deflaters [flate.BestCompression + 1]sync.Pool

// Write implements io.Writer. If there is no memory for a compressor, it compresses less, without one.
func (w *deflateWriter) Write(p []byte) (int, error) {
	if w.z == nil {
		if w.paid = *w.share.Load(); !w.paid.Try(limits.Compressors, deflateBytes) {
			return len(p), flate.StatelessDeflate(w.to, p, false, nil)
		}
		if z, ok := deflaters[w.level].Get().(*flate.Writer); ok {
			z.Reset(w.to)
			w.z = z
		} else {
			var err error
			if w.z, err = flate.NewWriter(w.to, w.level); err != nil {
				w.paid.Release(limits.Compressors, deflateBytes)
				return 0, err
			}
		}
	}
	return w.z.Write(p)
}

func (w *deflateWriter) Flush() error {
	if w.z == nil {
		return nil
	}
	return w.z.Flush()
}

// park releases the compressor. Everything must have been flushed, or the stream must have ended.
func (w *deflateWriter) park() {
	if w.z != nil {
		w.z.Reset(io.Discard) // the pool must not refer to the connection
		deflaters[w.level].Put(w.z)
		w.z = nil
		w.paid.Release(limits.Compressors, deflateBytes)
	}
}

const (
	// freeExpansion is the number of bytes to which any client's input may expand.
	freeExpansion = 1 << 20
	// strangersRatio is how many further bytes each compressed byte may expand to before any of the client's commands
	// has been allowed.
	strangersRatio = 16
	// maxRatio is how many further bytes each compressed byte may expand to afterwards, over the whole connection. For
	// text it is 5 to 30. A byte of deflate may become a thousand, and all of them would be stored.
	maxRatio = 64
)

// tooMuch is the error for input that expands too much. In and Out are the bytes of the connection so far.
type tooMuch struct{ In, Out int64 }

func (e *tooMuch) Error() string {
	return fmt.Sprintf("%d compressed bytes become more than %d, above %d times as many", e.In, e.Out, e.Out/max(e.In, 1))
}

// counted counts the bytes that are read. The decompressor has read ahead some of them.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// expansion bounds the size of a client's input after decompression. One goroutine uses it.
type expansion struct {
	from       io.Reader // the decompressor
	compressed *counted  // its source
	out        int64     // decompressed bytes
	vouched    *bool     // a command of the client was allowed
}

func (e *expansion) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	ratio := int64(strangersRatio)
	if *e.vouched {
		ratio = maxRatio
	}
	if e.out += int64(n); e.out > freeExpansion+ratio*e.compressed.n {
		return 0, &tooMuch{e.compressed.n, e.out}
	}
	return n, err
}
