package queue

import (
	"encoding/binary"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// CarryBuilder encodes a carry batch: messages that retention would take and
// some channel still needs, copied to the end of the log with their sequences
// and times. The batch itself takes no sequence.
type CarryBuilder struct{ draft DraftBuilder }

// carryHeadSize is the sequence and the time in front of each message.
const carryHeadSize = 16

// NewCarry starts a carry batch.
func NewCarry() *CarryBuilder {
	return &CarryBuilder{DraftBuilder{bytes: make([]byte, HeaderSize, HeaderSize+4096)}}
}

// Add appends a message as it was read.
func (b *CarryBuilder) Add(m Message) error {
	at := len(b.draft.bytes)
	b.draft.bytes = binary.LittleEndian.AppendUint64(b.draft.bytes, uint64(m.Seq))
	b.draft.bytes = binary.LittleEndian.AppendUint64(b.draft.bytes, uint64(m.Time))
	if err := b.draft.AddMessage(m); err != nil {
		b.draft.bytes = b.draft.bytes[:at]
		return err
	}
	return nil
}

// Count is the number of messages added so far.
func (b *CarryBuilder) Count() int { return b.draft.Count() }

// Size is the length of the batch so far.
func (b *CarryBuilder) Size() int { return b.draft.Size() }

// Draft finishes the batch. The builder must not be used afterwards.
func (b *CarryBuilder) Draft() Draft {
	return Draft{Bytes: b.draft.bytes, PayloadCRC: Checksum(b.draft.bytes[HeaderSize:]), Control: ControlCarry}
}

// NewFile makes the batch at which every replica begins a new file of its log: a carry
// batch without messages. A log that nobody needs any more would else keep its newest
// file.
func NewFile() Draft { return NewCarry().Draft() }

// BeginsFile reports whether it is one that NewFile made.
func (b *Batch) BeginsFile() bool { return b.Control == ControlCarry && len(b.Bytes) == HeaderSize }

// Carried appends the messages of a carry batch to dst, with the sequences and
// times that they were put with. Any other batch has none.
func (b *Batch) Carried(dst []Message) []Message {
	if b.Control != ControlCarry {
		return dst
	}
	for p := b.Bytes[HeaderSize:]; len(p) > 0; {
		n := binary.LittleEndian.Uint32(p[carryHeadSize:])
		m, _ := decodeMessage(p[carryHeadSize+4 : carryHeadSize+4+n])
		m.Seq, m.Time = ident.Sequence(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:]))
		dst = append(dst, m)
		p = p[carryHeadSize+4+n:]
	}
	return dst
}

// checkCarried walks the payload once so that Carried cannot run past it.
func checkCarried(b Batch) error {
	for p := b.Bytes[HeaderSize:]; len(p) > 0; {
		if len(p) < carryHeadSize+messageMinSize {
			return fmt.Errorf("%w: a carried message is cut short", ErrCorrupt)
		}
		n := uint64(binary.LittleEndian.Uint32(p[carryHeadSize:]))
		if n < 1 || n+4+carryHeadSize > uint64(len(p)) {
			return fmt.Errorf("%w: a carried message has length %d", ErrCorrupt, n)
		}
		if _, ok := decodeMessage(p[carryHeadSize+4 : carryHeadSize+4+n]); !ok {
			return fmt.Errorf("%w: a carried message is malformed", ErrCorrupt)
		}
		p = p[carryHeadSize+4+n:]
	}
	return nil
}
