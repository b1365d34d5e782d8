package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
)

const (
	// maxLine is the longest command line, its newline included.
	maxLine = 16 << 10
	// An idle connection costs minInput; the buffer of a busy one grows to maxInput, so that one read returns more
	// pipelined puts. Before the first command that requires a right it grows to maxLine.
	minInput = 4 << 10
	maxInput = 128 << 10
)

// errLineTooLong ends a connection without an error frame, as in stock NSQ.
var errLineTooLong = errors.New("tcp: command line is too long")

// input buffers the bytes of the client. Unlike bufio.Reader it grows when reads fill it, and shows its content, so
// that pipelined puts can be gathered. The returned slices are valid until the next call.
type input struct {
	src  io.Reader
	buf  []byte
	r, w int
	full bool // the last read filled the buffer: the next one may use a larger buffer
	most int  // largest size of buf
}

func (in *input) reset(src io.Reader) { in.src, in.r, in.w = src, 0, 0 }

// buffered returns the bytes that have been received but not consumed.
func (in *input) buffered() []byte { return in.buf[in.r:in.w] }

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

func (in *input) fill() error {
	size := len(in.buf)
	if (in.full || in.w-in.r == size) && size < in.most {
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

// read fills dst. A large unbuffered part is read directly into dst: one copy from the socket to the batch.
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

// decimal reads [0-9]*. As in stock NSQ the empty string is 0. A number beyond 64 bits becomes the largest one, so that
// every limit applies; stock NSQ wraps, which makes 2^64 milliseconds 0.
func decimal(b []byte) (n uint64, ok bool) {
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		if digit := uint64(d - '0'); n > (math.MaxUint64-digit)/10 {
			n = math.MaxUint64
		} else {
			n = n*10 + digit
		}
	}
	return n, true
}

// maxParams is more than any command takes. The rest of a line stays in the last parameter: a line of spaces would
// otherwise cost 24 bytes for each of them, for the lifetime of the connection.
const maxParams = 16

// splitParams splits a line at every space and appends the parts to dst. Two consecutive spaces make an empty
// parameter.
func splitParams(line []byte, dst [][]byte) [][]byte {
	for len(dst) < maxParams {
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			break
		}
		dst = append(dst, line[:i:i])
		line = line[i+1:]
	}
	return append(dst, line)
}
