package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

const (
	// maxLine is the longest command line, its newline included.
	maxLine = 16 << 10
	// An idle connection costs minInput; a busy one grows to maxInput, so that
	// more pipelined puts are seen at once.
	minInput = 4 << 10
	maxInput = 128 << 10
)

// errLineTooLong ends a connection without an error frame, as in stock NSQ.
var errLineTooLong = errors.New("protocol: command line is too long")

// input buffers what the client sends. Unlike bufio.Reader it grows when reads
// fill it, and shows what is buffered so that pipelined puts can be gathered.
// Slices it returns are valid until the next call.
type input struct {
	src  io.Reader
	buf  []byte
	r, w int
	full bool // the last read filled the buffer: the next one may use a larger one
}

func newInput(src io.Reader) *input {
	return &input{src: src, buf: make([]byte, minInput)}
}

// reset reads from src from now on; what was buffered is dropped.
func (in *input) reset(src io.Reader) { in.src, in.r, in.w = src, 0, 0 }

// buffered is what was received and not yet consumed.
func (in *input) buffered() []byte { return in.buf[in.r:in.w] }

// discard consumes n buffered bytes.
func (in *input) discard(n int) { in.r += n }

// line returns the next line without its newline and one carriage return.
func (in *input) line() ([]byte, error) {
	searched := 0
	for {
		b := in.buffered()
		if i := bytes.IndexByte(b[searched:], '\n'); i >= 0 {
			end := searched + i
			if end >= maxLine {
				return nil, errLineTooLong
			}
			in.discard(end + 1)
			return bytes.TrimSuffix(b[:end:end], []byte{'\r'}), nil
		}
		if len(b) >= maxLine {
			return nil, errLineTooLong
		}
		searched = len(b)
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads once from the source, making room first.
func (in *input) fill() error {
	size := len(in.buf)
	if (in.full || in.w-in.r == size) && size < maxInput {
		size *= 2
	}
	switch {
	case size != len(in.buf):
		grown := make([]byte, size)
		in.w = copy(grown, in.buffered())
		in.buf, in.r = grown, 0
	case in.r > 0:
		in.w = copy(in.buf, in.buffered())
		in.r = 0
	}
	for range maxEmptyReads {
		n, err := in.src.Read(in.buf[in.w:])
		in.w += n
		in.full = in.w == len(in.buf)
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

const maxEmptyReads = 100

// read fills dst. The part that is not buffered goes straight from the source
// to dst when it is large: one copy from the socket to the batch.
func (in *input) read(dst []byte) error {
	n := copy(dst, in.buffered())
	in.discard(n)
	for dst = dst[n:]; len(dst) > 0; dst = dst[n:] {
		if len(dst) >= len(in.buf) {
			_, err := io.ReadFull(in.src, dst)
			return err
		}
		if err := in.fill(); err != nil {
			return err
		}
		n = copy(dst, in.buffered())
		in.discard(n)
	}
	return nil
}

// size reads a 4-byte big-endian length.
func (in *input) size() (int32, error) {
	for in.w-in.r < 4 {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	n := int32(binary.BigEndian.Uint32(in.buffered()))
	in.discard(4)
	return n, nil
}

// skip reads n bytes and forgets them.
func (in *input) skip(n int64) error {
	for n > 0 {
		if in.r == in.w {
			if err := in.fill(); err != nil {
				return err
			}
		}
		k := min(n, int64(in.w-in.r))
		in.discard(int(k))
		n -= k
	}
	return nil
}
