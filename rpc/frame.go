package rpc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Class is the purpose of a frame, which decides its priority and window. The numbers are on the wire.
type Class uint8

// The classes of traffic.
const (
	// ClassReplica carries appends, acknowledgements, probes.
	ClassReplica Class = 1
	// ClassForward carries puts to the leader and their answers.
	ClassForward Class = 2
	// ClassRelay carries deliveries, credit, finishes.
	ClassRelay Class = 3
	// ClassControl carries requests and responses, and small cluster messages.
	ClassControl Class = 4
	// ClassBulk carries catch-up; it yields to all other classes.
	ClassBulk Class = 5
)

const classes = 6 // numbers 0 (the connection's own) to 5

// String names the class as logs and metrics show it.
func (c Class) String() string {
	if int(c) < classes {
		return [classes]string{"connection", "replica", "forward", "relay", "control", "bulk"}[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// level is the priority of a class: 0 is sent first. Puts and their answers do not wait behind the deliveries to
// consumers that are far behind.
func (c Class) level() int { return [classes]int{0, 0, 1, 2, 0, 3}[c] }

const levels = 4

// Frame is the argument of Send.
type Frame struct {
	Class Class
	// Header is encoded with Marshal before Send returns.
	Header any
	// Payload is written to the socket as it is and must never change again.
	Payload [][]byte
}

// Received is a frame as it arrived. Both slices belong to the receiver.
type Received struct {
	Class   Class
	Header  []byte // for Unmarshal
	Payload []byte
	More    bool // bytes of the next frame have already been read
}

// kind is the kind of a frame on the wire.
type kind uint8

const (
	kindFrame kind = iota + 1
	kindRequest
	kindResponse
	kindRest
	kindHeartbeat
	kindHello
	kindProof
	kindRefusal
)

// The limits of the format.
const (
	// MaxHeader is the longest header in bytes.
	MaxHeader = 1 << 20
	// MaxPayload is the longest payload of one frame in bytes: the state of a partition's channels
	// must fit, 16 bytes for each delayed message.
	MaxPayload = 512 << 20

	preludeBytes  = 24
	checksumBytes = 4
	pieceBytes    = 256 << 10
	formatVersion = 2

	// flagChecked: the checksum of the payload in this piece follows.
	flagChecked = 1
)

var (
	errMalformed = errors.New("rpc: malformed frame")
	// errChecksum means that bytes changed between a peer and this broker.
	errChecksum = errors.New("rpc: checksum of a frame")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// prelude is the fixed part of a frame.
type prelude struct {
	kind   kind
	class  Class
	header int // bytes
	whole  int // payload bytes of the whole frame
	here   int // payload bytes in this piece
	crc    uint32

	checked bool // the checksum of these payload bytes follows the prelude
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendPiece appends prelude and header to b. The two checksums of a checked piece are filled in by seal.
func appendPiece(b []byte, p prelude, header []byte) []byte {
	at, flags := len(b), byte(0)
	if p.checked {
		flags = flagChecked
	}
	b = append(b, 'L', 'F', formatVersion, byte(p.kind), byte(p.class), flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.whole))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.here))
	if p.checked {
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
		return append(b, header...)
	}
	crc := crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, header)
	b = binary.LittleEndian.AppendUint32(b, crc)
	return append(b, header...)
}

// seal fills in the checksums of a checked piece: head is its prelude and header.
func seal(head []byte, payload [][]byte) {
	crc := uint32(0)
	for _, part := range payload {
		crc = crc32.Update(crc, castagnoli, part)
	}
	binary.LittleEndian.PutUint32(head[preludeBytes:], crc)
	crc = crc32.Update(crc32.Checksum(head[:preludeBytes-4], castagnoli), castagnoli, head[preludeBytes:])
	binary.LittleEndian.PutUint32(head[preludeBytes-4:], crc)
}

// parsePrelude makes all checks that need no header; checkHeader checks the crc.
func parsePrelude(b *[preludeBytes]byte) (prelude, error) {
	p := prelude{
		kind: kind(b[3]), class: Class(b[4]),
		header: int(binary.LittleEndian.Uint32(b[8:])),
		whole:  int(binary.LittleEndian.Uint32(b[12:])),
		here:   int(binary.LittleEndian.Uint32(b[16:])),
		crc:    binary.LittleEndian.Uint32(b[20:]),

		checked: b[5]&flagChecked != 0,
	}
	switch {
	case b[0] != 'L' || b[1] != 'F':
		return p, malformed("begins with %x, not a broker's connection", b[:4])
	case b[2] != formatVersion:
		return p, malformed("format version %d, this broker reads %d", b[2], formatVersion)
	case p.kind < kindFrame || p.kind > kindRefusal:
		return p, malformed("unknown kind %d", p.kind)
	case p.class >= classes || (p.kind <= kindRest) != (p.class != 0):
		return p, malformed("kind %d with class %d", p.kind, p.class)
	case p.header > MaxHeader || p.whole > MaxPayload:
		return p, malformed("header of %d and payload of %d bytes", p.header, p.whole)
	case p.here > pieceBytes:
		return p, malformed("piece of %d bytes", p.here)
	case p.kind == kindRest && (p.header != 0 || p.whole != 0 || p.here == 0):
		return p, malformed("rest with a header or without bytes")
	case p.kind != kindRest && p.here != min(p.whole, pieceBytes):
		return p, malformed("piece of %d bytes of %d", p.here, p.whole)
	case p.checked && p.here == 0:
		return p, malformed("checksum of no payload")
	}
	return p, nil
}

// checkHeader compares the crc over the prelude, the payload's checksum, if any, and the header.
func checkHeader(b *[preludeBytes]byte, p prelude, sum, header []byte) error {
	crc := crc32.Update(crc32.Checksum(b[:preludeBytes-4], castagnoli), castagnoli, sum)
	if crc = crc32.Update(crc, castagnoli, header); crc != p.crc {
		return fmt.Errorf("%w: %w: header %08x, computed %08x", errMalformed, errChecksum, p.crc, crc)
	}
	return nil
}

// checkPayload compares the checksum of one piece's payload; an empty sum is not compared.
func checkPayload(sum, payload []byte) error {
	if len(sum) == 0 {
		return nil
	}
	if want, crc := binary.LittleEndian.Uint32(sum), crc32.Checksum(payload, castagnoli); crc != want {
		return fmt.Errorf("%w: payload %08x, computed %08x", errChecksum, want, crc)
	}
	return nil
}

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
	limit   int  // limit of header and payload together, in bytes
	checked bool // the peer sends checksums of all payloads
	// bound returns an error if a frame with this header must not have that many payload bytes; nil: MaxPayload is the
	// limit for all.
	bound func(k kind, header []byte, whole int) error
}

// unfinished is a frame whose first pieces have arrived.
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
