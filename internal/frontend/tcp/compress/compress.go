package compress

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// The framed snappy format: chunks of a type, a length of 3 bytes and a checksum.
const (
	// SnappyBlock is the largest block.
	SnappyBlock     = 64 << 10
	snappyStart     = "\xff\x06\x00\x00sNaPpY"
	snappyHead      = 4 + 4
	chunkCompressed = 0x00
	chunkPlain      = 0x01
)

// Snappy compresses each write by itself, so that it keeps no memory between writes, unlike the library's writer:
// output.buf gathers small writes before it.
type Snappy struct {
	to      io.Writer
	started bool
}

// NewSnappy makes a writer of the framed snappy format.
func NewSnappy(to io.Writer) *Snappy { return &Snappy{to: to} }

var snappyBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, len(snappyStart)+snappyHead+s2.MaxEncodedLen(SnappyBlock))
	return &b
}}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write implements io.Writer.
func (w *Snappy) Write(p []byte) (n int, err error) {
	pooled := snappyBuffers.Get().(*[]byte)
	defer snappyBuffers.Put(pooled)
	for n < len(p) {
		block := p[n:min(len(p), n+SnappyBlock)]
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
func (w *Snappy) Flush() error { return nil }

// Deflate has a compressor only while the client is busy. Between two flushes the stream stands at the boundary of a
// block and of a byte, so that another compressor can continue it: it refers to nothing that was sent before.
type Deflate struct {
	to    io.Writer
	level int
	share *atomic.Pointer[limits.Share]
	paid  limits.Share  // that the memory of z is reserved of
	z     *flate.Writer // nil = parked
}

// NewDeflate makes a writer of deflate at a level of 1 to 9. The memory of its compressor counts against the share that
// the client has when the compressor begins.
func NewDeflate(to io.Writer, level int, share *atomic.Pointer[limits.Share]) *Deflate {
	return &Deflate{to: to, level: level, share: share}
}

// deflateBytes is the memory of a compressor.
const deflateBytes = 5 << 18

// deflaters pools the compressors of each level.
var deflaters [flate.BestCompression + 1]sync.Pool

// Write implements io.Writer. If there is no memory for a compressor, it compresses less, without one.
func (w *Deflate) Write(p []byte) (int, error) {
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

// Flush sends what was written.
func (w *Deflate) Flush() error {
	if w.z == nil {
		return nil
	}
	return w.z.Flush()
}

// Park gives the compressor back. Everything must have been flushed, or the stream must have ended.
func (w *Deflate) Park() {
	if w.z != nil {
		w.z.Reset(io.Discard) // the pool holds no connection
		deflaters[w.level].Put(w.z)
		w.z = nil
		w.paid.Release(limits.Compressors, deflateBytes)
	}
}
