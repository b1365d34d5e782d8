package rpc

import (
	"bufio"
	"fmt"
	"io"
)

const readBufferBytes = 64 << 10

// arrival is a whole received frame.
type arrival struct {
	kind            kind
	class           Class
	header, payload []byte // fresh memory
}

// frameReader splits a stream of bytes into frames and joins their pieces.
type frameReader struct {
	r       *bufio.Reader
	prelude [preludeBytes]byte
	sum     [checksumBytes]byte
	open    [levels]unfinished
	limit   int  // bytes of header and payload together
	checked bool // the peer sends checksums of all payloads
	// bound returns an error if a frame with this header may not have so many payload bytes; nil:
	// MaxPayload is the limit for all.
	bound func(k kind, header []byte, whole int) error
}

// unfinished is a frame of which only the first pieces have arrived.
type unfinished struct {
	arrival
	have int // payload bytes; 0 = no open frame
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readBufferBytes), limit: MaxHeader + MaxPayload}
}

// next reads the next whole frame. io.EOF means that the stream ended between two frames.
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
		if f.checked && p.here > 0 && !p.checked {
			return arrival{}, malformed("payload of %d bytes without the checksum that was agreed", p.here)
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

// piece reads the piece after a prelude and reports whether it ends a frame.
func (f *frameReader) piece(p prelude) (arrival, bool, error) {
	var sum []byte
	if p.checked {
		sum = f.sum[:]
		if _, err := io.ReadFull(f.r, sum); err != nil {
			return arrival{}, false, err
		}
	}
	if p.kind == kindRest {
		return f.rest(p, sum)
	}
	if p.class != 0 && f.open[p.class.level()].have != 0 {
		return arrival{}, false, malformed("%s frame inside another of its priority", p.class)
	}
	if p.whole == p.here {
		a, err := f.short(p, sum)
		return a, true, err
	}
	return arrival{}, false, f.first(p, sum)
}

// short reads a frame of one piece, with one allocation.
func (f *frameReader) short(p prelude, sum []byte) (arrival, error) {
	b := make([]byte, p.header+p.here)
	a := arrival{p.kind, p.class, b[:p.header:p.header], b[p.header:]}
	if _, err := io.ReadFull(f.r, b); err != nil {
		return a, err
	}
	if err := checkHeader(&f.prelude, p, sum, a.header); err != nil {
		return a, err
	}
	return a, checkPayload(sum, a.payload)
}

// first reads the first piece of a longer frame. It allocates the memory for the whole frame only
// after the check of the prelude.
func (f *frameReader) first(p prelude, sum []byte) error {
	a := arrival{kind: p.kind, class: p.class, header: make([]byte, p.header)}
	if _, err := io.ReadFull(f.r, a.header); err != nil {
		return err
	}
	if err := checkHeader(&f.prelude, p, sum, a.header); err != nil {
		return err
	}
	if f.bound != nil {
		if err := f.bound(p.kind, a.header, p.whole); err != nil {
			return err
		}
	}
	a.payload = make([]byte, p.whole)
	f.open[p.class.level()] = unfinished{a, p.here}
	if _, err := io.ReadFull(f.r, a.payload[:p.here]); err != nil {
		return err
	}
	return checkPayload(sum, a.payload[:p.here])
}

// rest reads one more piece of an open frame.
func (f *frameReader) rest(p prelude, sum []byte) (arrival, bool, error) {
	u := &f.open[p.class.level()]
	switch {
	case u.have == 0 || u.class != p.class:
		return arrival{}, false, malformed("rest of a %s frame that never began", p.class)
	case p.here != min(len(u.payload)-u.have, pieceBytes):
		return arrival{}, false, malformed("rest of %d bytes after %d of %d", p.here, u.have, len(u.payload))
	}
	if err := checkHeader(&f.prelude, p, sum, nil); err != nil {
		return arrival{}, false, err
	}
	piece := u.payload[u.have : u.have+p.here]
	if _, err := io.ReadFull(f.r, piece); err != nil {
		return arrival{}, false, err
	}
	if err := checkPayload(sum, piece); err != nil {
		return arrival{}, false, err
	}
	if u.have += p.here; u.have < len(u.payload) {
		return arrival{}, false, nil
	}
	a := u.arrival
	*u = unfinished{}
	return a, true, nil
}

// noEOF turns an end inside a frame into io.ErrUnexpectedEOF, because it is not a clean end.
func noEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("rpc: connection ended inside a frame: %w", io.ErrUnexpectedEOF)
	}
	return err
}
