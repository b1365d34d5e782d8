package queue

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// Flags of a message. On disk and on the wire: append only.
	messageTrace       = 1
	messageDeliverAt   = 2
	messageHeader      = 4
	messageIdentity    = 8
	messagePutIdentity = 16 // with messageIdentity
	messageMinSize     = 5  // length and flags
)

// MaxMessageHeader bounds the header bytes of one message.
const MaxMessageHeader = 1<<16 - 1

// Message is one message of a batch. Header and Body alias the bytes of the batch and must not be changed.
type Message struct {
	Time      int64 // unix ns: when the put was sealed
	DeliverAt int64 // unix ns; 0 = at once
	Trace     uint64
	Header    []byte
	Body      []byte
	Attempts  uint16
	Seq       ident.Sequence
	// Identity, unless zero, recognises the message if it is published again. Copies have different identities, and
	// relocations have none.
	Identity Identity
	// IsPutIdentity, set on the first message of a put, means that Identity identifies the whole put.
	// The other messages have no identity, and the put is stored completely or not at all.
	IsPutIdentity bool
}

// Size is the size of header and body in bytes.
func (m *Message) Size() int { return len(m.Header) + len(m.Body) }

// DraftBuilder encodes the messages of one put. Its zero value is not usable; see NewDraft.
type DraftBuilder struct {
	bytes      []byte
	count      uint32
	identified bool
}

// NewDraft starts a put. sizeHint is the sum of the body sizes in bytes, 0 if unknown.
func NewDraft(sizeHint int) *DraftBuilder {
	return &DraftBuilder{bytes: make([]byte, HeaderSize, HeaderSize+sizeHint+2*messageMinSize)}
}

// Grow appends a body-only message of n bytes and returns its body, so that the socket is read into the batch.
func (b *DraftBuilder) Grow(n int) []byte {
	b.bytes = binary.LittleEndian.AppendUint32(b.bytes, uint32(1+n))
	b.bytes = append(b.bytes, 0)
	at := len(b.bytes)
	if cap(b.bytes) < at+n {
		grown := make([]byte, at, max(2*cap(b.bytes), at+n))
		copy(grown, b.bytes)
		b.bytes = grown
	}
	b.bytes = b.bytes[:at+n]
	b.count++
	return b.bytes[at:]
}

// AddMessage appends a message with its trace id, deadline and headers. If the header is longer
// than MaxMessageHeader, it returns an error and appends nothing.
func (b *DraftBuilder) AddMessage(m Message) error {
	if len(m.Header) > MaxMessageHeader {
		return fmt.Errorf("queue: message header of %d bytes exceeds %d", len(m.Header), MaxMessageHeader)
	}
	at := len(b.bytes)
	b.bytes = append(b.bytes, 0, 0, 0, 0, 0)
	var flags byte
	if m.Trace != 0 {
		flags |= messageTrace
		b.bytes = binary.LittleEndian.AppendUint64(b.bytes, m.Trace)
	}
	if m.DeliverAt != 0 {
		flags |= messageDeliverAt
		b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(m.DeliverAt))
	}
	if len(m.Header) > 0 {
		flags |= messageHeader
		b.bytes = binary.LittleEndian.AppendUint16(b.bytes, uint16(len(m.Header)))
		b.bytes = append(b.bytes, m.Header...)
	}
	if m.Identity != (Identity{}) {
		flags |= messageIdentity
		if m.IsPutIdentity {
			flags |= messagePutIdentity
		}
		b.bytes = append(b.bytes, m.Identity[:]...)
		b.identified = true
	}
	b.bytes = append(b.bytes, m.Body...)
	b.bytes[at+4] = flags
	binary.LittleEndian.PutUint32(b.bytes[at:], uint32(len(b.bytes)-at-4))
	b.count++
	return nil
}

// Count is the number of messages added so far.
func (b *DraftBuilder) Count() int { return int(b.count) }

// Size is the length of the batch so far in bytes, header included.
func (b *DraftBuilder) Size() int { return len(b.bytes) }

// Draft completes the put with the checksum of the payload. The builder must not be used afterwards.
func (b *DraftBuilder) Draft(r ident.RequestID) Draft {
	return Draft{Bytes: b.bytes, Count: b.count, PayloadCRC: Checksum(b.bytes[HeaderSize:]), Request: r, Identified: b.identified}
}

// FirstHeader is the header of the put's first message; nil if it has none.
func (d *Draft) FirstHeader() []byte {
	if d.Control != 0 || len(d.Bytes) <= HeaderSize+4 || d.Bytes[HeaderSize+4]&messageHeader == 0 {
		return nil
	}
	m, _ := decodeMessage(firstOf(d.Bytes[HeaderSize:]))
	return m.Header
}

// encodedMessages yields the messages of a checked payload, with their lengths.
func encodedMessages(p []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for n := 0; len(p) > 0; n++ {
			size := 4 + binary.LittleEndian.Uint32(p)
			if !yield(n, p[:size]) {
				return
			}
			p = p[size:]
		}
	}
}

// firstOf is the first message of a payload, without its length field.
func firstOf(p []byte) []byte { return p[4 : 4+binary.LittleEndian.Uint32(p)] }

// BodyBytes is the sum of the body sizes in bytes, without the encoding around them.
func (d *Draft) BodyBytes() int {
	if d.Control != 0 {
		return 0
	}
	sum := 0
	for p := d.Bytes[HeaderSize:]; len(p) >= messageMinSize; {
		n := uint64(binary.LittleEndian.Uint32(p))
		if n < 1 || n+4 > uint64(len(p)) {
			break // malformed bytes from a peer; the leader refuses them when it decodes the put
		}
		if m, ok := decodeMessage(p[4 : 4+n]); ok {
			sum += len(m.Body)
		}
		p = p[4+n:]
	}
	return sum
}

// Messages appends the messages of a sealed or decoded data batch to dst, from sequence `from` on, at most max.
func (b *Batch) Messages(from ident.Sequence, max int, dst []Message) []Message {
	if b.Control != 0 {
		return dst
	}
	p := b.Bytes[HeaderSize:]
	for seq := b.At.Sequence; seq < b.End.Sequence && max > 0; seq++ {
		n := binary.LittleEndian.Uint32(p)
		if seq >= from {
			m, _ := decodeMessage(p[4 : 4+n])
			m.Time, m.Seq = b.Time, seq
			dst = append(dst, m)
			max--
		}
		p = p[4+n:]
	}
	return dst
}

// checkMessages walks the payload once, so that Messages cannot run past its end.
func checkMessages(b Batch) error {
	p := b.Bytes[HeaderSize:]
	if b.Control == ControlRelocation {
		return checkRelocated(b)
	}
	if b.Control != 0 {
		return nil
	}
	identified := false
	for i := uint32(0); i < b.Count; i++ {
		if len(p) < messageMinSize {
			return fmt.Errorf("%w: message %d of %d is missing", ErrCorrupt, i, b.Count)
		}
		n := uint64(binary.LittleEndian.Uint32(p))
		if n < 1 || n+4 > uint64(len(p)) {
			return fmt.Errorf("%w: message %d has length %d", ErrCorrupt, i, n)
		}
		if _, ok := decodeMessage(p[4 : 4+n]); !ok {
			return fmt.Errorf("%w: message %d is malformed", ErrCorrupt, i)
		}
		identified = identified || p[4]&messageIdentity != 0
		p = p[4+n:]
	}
	if identified != b.Identified {
		return fmt.Errorf("%w: only one of the header and the messages has identities", ErrCorrupt)
	}
	if len(p) != 0 {
		return fmt.Errorf("%w: %d bytes after the last message", ErrCorrupt, len(p))
	}
	return nil
}

func decodeMessage(p []byte) (m Message, ok bool) {
	flags, p := p[0], p[1:]
	if flags&^(messageTrace|messageDeliverAt|messageHeader|messageIdentity|messagePutIdentity) != 0 || flags&(messageIdentity|messagePutIdentity) == messagePutIdentity {
		return Message{}, false
	}
	m.IsPutIdentity = flags&messagePutIdentity != 0
	if flags&messageTrace != 0 {
		if len(p) < 8 {
			return Message{}, false
		}
		m.Trace, p = binary.LittleEndian.Uint64(p), p[8:]
	}
	if flags&messageDeliverAt != 0 {
		if len(p) < 8 {
			return Message{}, false
		}
		m.DeliverAt, p = int64(binary.LittleEndian.Uint64(p)), p[8:]
	}
	if flags&messageHeader != 0 {
		if len(p) < 2 {
			return Message{}, false
		}
		n := int(binary.LittleEndian.Uint16(p))
		if len(p) < 2+n {
			return Message{}, false
		}
		m.Header, p = p[2:2+n], p[2+n:]
	}
	if flags&messageIdentity != 0 {
		if len(p) < len(m.Identity) {
			return Message{}, false
		}
		p = p[copy(m.Identity[:], p):]
	}
	m.Body = p
	return m, true
}

// HeaderTTL is the header with the time to live of a message, in ms since the put. The limit of the topic also applies.
const HeaderTTL = "##ttl_ms"

// MaxTTLMS is the longest time to live: its nanoseconds fit into 63 bits.
const MaxTTLMS = 1 << 42

var quotedTTL = []byte(`"` + HeaderTTL + `"`)

// TTLMS is the message's own limit in ms; 0: none.
func (m *Message) TTLMS() int64 {
	if !bytes.Contains(m.Header, quotedTTL) && bytes.IndexByte(m.Header, '\\') < 0 { // JSON may write the name with escapes
		return 0
	}
	var h struct {
		MS int64 `json:"##ttl_ms"`
	}
	if json.Unmarshal(m.Header, &h) != nil {
		return 0
	}
	return min(max(h.MS, 0), MaxTTLMS)
}

// relocationBuilder encodes a relocation batch. It copies messages that retention would remove and some channel still
// needs to the end of the log, with their sequences and times. The batch itself takes no sequence.
type relocationBuilder struct{ DraftBuilder }

// relocationHeadSize is the size of the sequence and the time in front of each message.
const relocationHeadSize = 16

// NewRelocation starts a relocation batch.
func NewRelocation() *relocationBuilder {
	return &relocationBuilder{DraftBuilder{bytes: make([]byte, HeaderSize, HeaderSize+4096)}}
}

// Add appends a message as it was read. Errors are those of DraftBuilder.AddMessage.
func (b *relocationBuilder) Add(m Message) error {
	at := len(b.bytes)
	m.Identity, m.IsPutIdentity = Identity{}, false // identities stay with the original batch
	b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(m.Seq))
	b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(m.Time))
	err := b.AddMessage(m)
	if err != nil {
		b.bytes = b.bytes[:at]
	}
	return err
}

// Draft completes the batch. The builder must not be used afterwards.
func (b *relocationBuilder) Draft() Draft {
	return Draft{Bytes: b.bytes, PayloadCRC: Checksum(b.bytes[HeaderSize:]), Control: ControlRelocation}
}

// NewFile returns the batch at which every replica begins a new segment file: a relocation batch without messages.
// Without it, retention could not remove the newest file of a log that no channel needs.
func NewFile() Draft { return NewRelocation().Draft() }

// BeginsFile reports whether NewFile made the batch.
func (b *Batch) BeginsFile() bool {
	return b.Control == ControlRelocation && len(b.Bytes) == HeaderSize
}

// Relocated appends the messages of a relocation batch to dst, with their original sequences and times.
func (b *Batch) Relocated(dst []Message) []Message {
	if b.Control != ControlRelocation {
		return dst
	}
	for p := b.Bytes[HeaderSize:]; len(p) > 0; {
		n := binary.LittleEndian.Uint32(p[relocationHeadSize:])
		m, _ := decodeMessage(p[relocationHeadSize+4 : relocationHeadSize+4+n])
		m.Seq, m.Time = ident.Sequence(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:]))
		dst = append(dst, m)
		p = p[relocationHeadSize+4+n:]
	}
	return dst
}

// checkRelocated walks the payload once, so that Relocated cannot run past its end.
func checkRelocated(b Batch) error {
	for p := b.Bytes[HeaderSize:]; len(p) > 0; {
		if len(p) < relocationHeadSize+messageMinSize {
			return fmt.Errorf("%w: a relocated message is cut short", ErrCorrupt)
		}
		n := uint64(binary.LittleEndian.Uint32(p[relocationHeadSize:]))
		if n < 1 || n+4+relocationHeadSize > uint64(len(p)) {
			return fmt.Errorf("%w: a relocated message has length %d", ErrCorrupt, n)
		}
		if _, ok := decodeMessage(p[relocationHeadSize+4 : relocationHeadSize+4+n]); !ok {
			return fmt.Errorf("%w: a relocated message is malformed", ErrCorrupt)
		}
		p = p[relocationHeadSize+4+n:]
	}
	return nil
}
