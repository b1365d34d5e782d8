package compress

import (
	"errors"
	"io"
)

const (
	// freeExpansion is how many bytes a client may have decompressed before one of its commands
	// was allowed.
	freeExpansion = 1 << 20
	// maxExpansion is how many bytes more each compressed byte may become until then.
	maxExpansion = 16
)

// ErrExpansion ends the input of a client.
var ErrExpansion = errors.New("protocol: the input decompresses to too much before a command was allowed")

// Expansion bounds the work that a client causes by compressed input before one of its
// commands was allowed: a byte of deflate may become a thousand. From then on the bytes count
// against the publish rates. It reads the compressed bytes, and wraps the decompressor. One goroutine uses it.
type Expansion struct {
	vouched *bool
	src     io.Reader
	in      int64 // compressed bytes, those that the decompressor has read ahead included
	out     int64
	from    io.Reader // the decompressor
}

// NewExpansion reads compressed bytes. vouched is set when a command was allowed.
func NewExpansion(src io.Reader, vouched *bool) *Expansion {
	return &Expansion{src: src, vouched: vouched}
}

// Read reads compressed bytes.
func (e *Expansion) Read(p []byte) (int, error) {
	n, err := e.src.Read(p)
	e.in += int64(n)
	return n, err
}

// Of gives the decompressed side.
func (e *Expansion) Of(decompressor io.Reader) io.Reader {
	e.from = decompressor
	return (*expanded)(e)
}

// expanded is the decompressed side of an expansion.
type expanded Expansion

// Read reads decompressed bytes.
func (e *expanded) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if e.out += int64(n); !*e.vouched && e.out > freeExpansion+maxExpansion*e.in {
		return 0, ErrExpansion
	}
	return n, err
}
