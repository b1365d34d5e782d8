package protocol

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
)

// The framed snappy format: chunks of a type, a length of 3 bytes and a checksum.
const (
	// snappyBlock is the largest block.
	snappyBlock = 64 << 10
	// minSnappyBuffer is the read buffer of a client that has sent nothing yet.
	minSnappyBuffer = 1 << 10
	snappyStart     = "\xff\x06\x00\x00sNaPpY"
	snappyHead      = 4 + 4
	chunkCompressed = 0x00
	chunkPlain      = 0x01
)

// parker is a compressor that can give its memory back between two flushes.
type parker interface{ park() }

// parkLocked gives the memory of the compressor back, until the next write. An idle client
// would hold up to a megabyte of it otherwise, before it has logged in.
func (o *output) parkLocked() {
	if p, ok := o.compress.(parker); ok {
		p.park()
	}
}

// snappyWriter compresses each write by itself, so that it keeps no memory between writes, unlike
// the library's writer: output.buf gathers small writes before it.
type snappyWriter struct {
	to      io.Writer
	started bool
}

var snappyBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, len(snappyStart)+snappyHead+s2.MaxEncodedLen(snappyBlock))
	return &b
}}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write implements io.Writer.
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

// snappyChunk appends a block to b, whose capacity suffices. A block that would not shrink by an
// eighth is appended as it is.
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

// deflateWriter has a compressor only while the client is busy. Between two flushes the stream
// stands at the boundary of a block and of a byte, so that another compressor can continue it: it
// refers to nothing that was sent before.
type deflateWriter struct {
	to    io.Writer
	level int
	z     *flate.Writer // nil = parked
}

// deflaters pools the compressors of each level.
var deflaters [flate.BestCompression + 1]sync.Pool

// Write implements io.Writer.
func (w *deflateWriter) Write(p []byte) (int, error) {
	if w.z == nil {
		if z, ok := deflaters[w.level].Get().(*flate.Writer); ok {
			z.Reset(w.to)
			w.z = z
		} else {
			var err error
			if w.z, err = flate.NewWriter(w.to, w.level); err != nil {
				return 0, err
			}
		}
	}
	return w.z.Write(p)
}

// Flush sends what was written.
func (w *deflateWriter) Flush() error {
	if w.z == nil {
		return nil
	}
	return w.z.Flush()
}

// park gives the compressor back. Everything must have been flushed.
func (w *deflateWriter) park() {
	if w.z != nil {
		w.z.Reset(io.Discard) // the pool holds no connection
		deflaters[w.level].Put(w.z)
		w.z = nil
	}
}
