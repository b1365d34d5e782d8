package rpc

import (
	"bufio"
	"fmt"
	"io"
)

const readBufferBytes = 64 << 10

// arrival is a whole frame as it came off the wire.
type arrival struct {
	kind            kind
	class           Class
	header, payload []byte // fresh memory
}

// frameReader cuts a stream of bytes into frames and puts pieces together.
type frameReader struct {
	r       *bufio.Reader
	prelude [preludeBytes]byte
	open    [levels]unfinished
	limit   int // bytes of header and payload together
}

// unfinished is a frame of which only the first pieces have come.
type unfinished struct {
	arrival
	have int // payload bytes; 0 = none is open
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readBufferBytes), limit: MaxHeader + MaxPayload}
}

// next reads up to the end of the next whole frame. io.EOF means that the stream
// ended between two frames.
func (f *frameReader) next() (arrival, error) {
	for {
		if _, err := io.ReadFull(f.r, f.prelude[:]); err != nil {
			return arrival{}, err
		}
		p, err := parsePrelude(&f.prelude)
		if err != nil {
			return arrival{}, err
		}
		if p.header+p.whole > f.limit {
			return arrival{}, malformed("%d bytes where %d are allowed", p.header+p.whole, f.limit)
		}
		a, whole, err := f.piece(p)
		if err != nil {
			return arrival{}, noEOF(err)
		}
		if whole {
			return a, nil
		}
	}
}

// piece reads what follows a prelude and tells whether it ends a frame.
func (f *frameReader) piece(p prelude) (arrival, bool, error) {
	if p.kind == kindRest {
		return f.rest(p)
	}
	if p.class != 0 && f.open[p.class.level()].have != 0 {
		return arrival{}, false, malformed("%s frame inside another of its priority", p.class)
	}
	if p.whole == p.here {
		a, err := f.short(p)
		return a, true, err
	}
	return arrival{}, false, f.first(p)
}

// short reads a frame of one piece, with one allocation.
func (f *frameReader) short(p prelude) (arrival, error) {
	b := make([]byte, p.header+p.here)
	a := arrival{p.kind, p.class, b[:p.header:p.header], b[p.header:]}
	if _, err := io.ReadFull(f.r, b); err != nil {
		return a, err
	}
	return a, checkHeader(&f.prelude, p, a.header)
}

// first reads the first piece of a longer frame. The memory for all of it is
// taken only when the prelude is known to be whole.
func (f *frameReader) first(p prelude) error {
	a := arrival{kind: p.kind, class: p.class, header: make([]byte, p.header)}
	if _, err := io.ReadFull(f.r, a.header); err != nil {
		return err
	}
	if err := checkHeader(&f.prelude, p, a.header); err != nil {
		return err
	}
	a.payload = make([]byte, p.whole)
	f.open[p.class.level()] = unfinished{a, p.here}
	_, err := io.ReadFull(f.r, a.payload[:p.here])
	return err
}

// rest reads one more piece of an open frame.
func (f *frameReader) rest(p prelude) (arrival, bool, error) {
	u := &f.open[p.class.level()]
	switch {
	case u.have == 0 || u.class != p.class:
		return arrival{}, false, malformed("rest of a %s frame that never began", p.class)
	case p.here != min(len(u.payload)-u.have, pieceBytes):
		return arrival{}, false, malformed("rest of %d bytes after %d of %d", p.here, u.have, len(u.payload))
	}
	if err := checkHeader(&f.prelude, p, nil); err != nil {
		return arrival{}, false, err
	}
	if _, err := io.ReadFull(f.r, u.payload[u.have:u.have+p.here]); err != nil {
		return arrival{}, false, err
	}
	if u.have += p.here; u.have < len(u.payload) {
		return arrival{}, false, nil
	}
	a := u.arrival
	*u = unfinished{}
	return a, true, nil
}

// noEOF says that an end inside a frame is not a clean end.
func noEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("rpc: connection ended inside a frame: %w", io.ErrUnexpectedEOF)
	}
	return err
}
