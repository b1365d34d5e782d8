package queue

import (
	"encoding/binary"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// relocationBuilder encodes a relocation batch. It copies messages that retention would remove and some channel still
// needs to the end of the log, with their sequences and times. The batch itself takes no sequence.
type relocationBuilder struct{ DraftBuilder }

// relocationHeadSize is the size of the sequence and the time in front of each message.
const relocationHeadSize = 16

// NewRelocation starts a relocation batch.
func NewRelocation() *relocationBuilder {
	return &relocationBuilder{DraftBuilder{bytes: make([]byte, HeaderSize, HeaderSize+4096)}}
}

// Add appends a message as it was read. Errors as DraftBuilder.AddMessage.
func (b *relocationBuilder) Add(m Message) error {
	at := len(b.bytes)
	m.Identity, m.IsPutIdentity = Identity{}, false // they stay with the original batch
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
