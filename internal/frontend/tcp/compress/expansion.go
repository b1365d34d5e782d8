package compress

import (
	"fmt"
	"io"
)

const (
	// freeExpansion is how many bytes the input of a client may become in any case.
	freeExpansion = 1 << 20
	// strangersRatio is how many bytes more each compressed byte may become before one of the client's commands was
	// allowed.
	strangersRatio = 16
	// MaxRatio is how many bytes more each compressed byte may become afterwards, over the whole connection. Texts
	// become 5 to 30. A byte of deflate may become a thousand, and all of them would be stored.
	MaxRatio = 64
)

// TooMuch is the error of input that becomes too large. In and Out are the bytes of the connection so far.
type TooMuch struct{ In, Out int64 }

// Error implements error.
func (e *TooMuch) Error() string {
	return fmt.Sprintf("%d compressed bytes become more than %d, above %d times as many", e.In, e.Out, e.Out/max(e.In, 1))
}

// Expansion bounds what compressed input of a client becomes, when it is decompressed. It reads the compressed bytes,
// and wraps the decompressor. One goroutine uses it.
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
	ratio := int64(strangersRatio)
	if *e.vouched {
		ratio = MaxRatio
	}
	if e.out += int64(n); e.out > freeExpansion+ratio*e.in {
		return 0, &TooMuch{e.in, e.out}
	}
	return n, err
}
