package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// HeaderSize is the length of a batch header in bytes.
const HeaderSize = 80

// MaxBatchBytes bounds one batch, and so the decoder's allocations, and is well above --max-body-size (5 MiB).
const MaxBatchBytes = 64 << 20

const (
	magic   = 0x31424b4c // "LKB1" read little-endian
	version = 1
	// Flags of a batch. On disk and on the wire: append only.
	flagControl    = 1
	flagIdentified = 2
)

const (
	// Offsets of the header's fields. On disk and on the wire: see doc.go.
	offFlags     = 5
	offControl   = 6
	offLength    = 8
	offCount     = 12
	offPayload   = 16
	offPrev      = 20
	offEpoch     = 24
	offBase      = 32
	offSequence  = 40
	offTime      = 48
	offProducer  = 56
	offN         = 64
	offClock     = 72
	offHeaderCRC = 76
)

// The kinds of control batches. On disk and on the wire: append only.
const (
	// ControlMarker opens an epoch. The leader serves nothing in the epoch before the marker is committed.
	ControlMarker uint8 = 1
	// ControlRelocation contains copies of older messages, so that retention may remove the head of the log although
	// the messages are not finished; see relocationBuilder.
	ControlRelocation uint8 = 2
)

var (
	// ErrTorn means that the bytes end before the batch does.
	ErrTorn = errors.New("queue: batch is cut short")
	// ErrCorrupt means that a checksum or a field is wrong.
	ErrCorrupt = errors.New("queue: batch is corrupt")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of b, as in batches and their headers.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Draft is one put, encoded and checksummed once by the goroutine that read it from the client.
type Draft struct {
	Bytes      []byte // HeaderSize bytes for the header, then the payload
	Count      uint32
	PayloadCRC uint32
	Request    ident.RequestID
	Control    uint8 // a Control… kind, or 0 for messages
	Identified bool  // some of the messages have an Identity
	Clock      Clock // with Identified; see Clock
}

// Size is the number of bytes that the sealed batch will have.
func (d *Draft) Size() int { return len(d.Bytes) }

// Marker returns the control batch that opens an epoch.
func Marker() Draft {
	return Draft{Bytes: make([]byte, HeaderSize), Control: ControlMarker}
}

// Batch is a sealed batch. The other fields repeat the content of Bytes.
type Batch struct {
	Bytes   []byte
	Epoch   ident.Epoch
	At      ident.Position // where it begins
	End     ident.Position // where the next batch begins
	CRC     uint32         // header checksum; identifies the batch and all before it
	PrevCRC uint32
	Time    int64 // unix ns
	Count   uint32
	Control uint8
	Request ident.RequestID

	Identified bool  // some of the messages have an Identity
	Clock      Clock // with Identified; see Clock
}

// Record is the batch's record in the commit log. It needs only the header of the batch.
func (b *Batch) Record() commitlog.Record {
	return commitlog.Record{
		Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
		Size: uint32(b.End.Offset - b.At.Offset), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: b.Time / 1e6,
		Identified: b.Identified,
	}
}

// Seal fills in the header in constant time. The draft's bytes belong to the batch afterwards: retries seal a Clone.
func (d *Draft) Seal(at ident.Position, e ident.Epoch, prevCRC uint32, timeNS int64) Batch {
	h := d.Bytes[:HeaderSize]
	clear(h)
	le := binary.LittleEndian
	le.PutUint32(h, magic)
	h[4] = version
	if d.Control != 0 {
		h[offFlags] = flagControl
		h[offControl] = d.Control
	}
	if d.Identified {
		h[offFlags] |= flagIdentified
	}
	le.PutUint32(h[offLength:], uint32(len(d.Bytes)))
	le.PutUint32(h[offCount:], d.Count)
	le.PutUint32(h[offPayload:], d.PayloadCRC)
	le.PutUint32(h[offPrev:], prevCRC)
	le.PutUint64(h[offEpoch:], uint64(e))
	le.PutUint64(h[offBase:], uint64(at.Offset))
	le.PutUint64(h[offSequence:], uint64(at.Sequence))
	le.PutUint64(h[offTime:], uint64(timeNS))
	le.PutUint64(h[offProducer:], d.Request.Producer)
	le.PutUint64(h[offN:], d.Request.N)
	clock := Clock(0)
	if d.Identified {
		clock = d.Clock
		le.PutUint32(h[offClock:], uint32(clock))
	}
	crc := Checksum(h[:offHeaderCRC])
	le.PutUint32(h[offHeaderCRC:], crc)
	return Batch{
		Bytes: d.Bytes, Epoch: e, At: at,
		End: ident.Position{
			Offset:   at.Offset + ident.Offset(len(d.Bytes)),
			Sequence: at.Sequence + ident.Sequence(d.Count),
		},
		CRC: crc, PrevCRC: prevCRC, Time: timeNS, Count: d.Count, Control: d.Control, Request: d.Request,
		Identified: d.Identified, Clock: clock,
	}
}

// Clone copies the draft, so that a retry can be sealed while the previously sealed bytes are still in use.
func (d *Draft) Clone() Draft {
	c := *d
	c.Bytes = bytes.Clone(d.Bytes)
	return c
}

// Decode decodes and completely checks the first batch of b. It returns the batch, whose Bytes alias b, and its length
// in bytes. Errors: ErrTorn if b is too short, ErrCorrupt if the bytes are not a valid batch.
func Decode(b []byte) (Batch, int, error) {
	batch, n, err := DecodeHeader(b)
	if err != nil {
		return Batch{}, 0, err
	}
	if len(b) < n {
		return Batch{}, 0, ErrTorn
	}
	want := binary.LittleEndian.Uint32(b[offPayload:])
	if got := Checksum(b[HeaderSize:n]); got != want {
		return Batch{}, 0, fmt.Errorf("%w: payload checksum %08x, header says %08x", ErrCorrupt, got, want)
	}
	batch.Bytes = b[:n:n]
	if err := checkMessages(batch); err != nil {
		return Batch{}, 0, err
	}
	return batch, n, nil
}

// DecodeHeader decodes and checks a header alone, and returns the length of the batch. Errors: ErrTorn, ErrCorrupt.
func DecodeHeader(b []byte) (Batch, int, error) {
	if len(b) < HeaderSize {
		return Batch{}, 0, ErrTorn
	}
	le := binary.LittleEndian
	if le.Uint32(b) != magic || b[4] != version || b[7] != 0 || b[offFlags] != flagIdentified && le.Uint32(b[offClock:]) != 0 {
		return Batch{}, 0, fmt.Errorf("%w: no batch header here", ErrCorrupt)
	}
	crc := le.Uint32(b[offHeaderCRC:])
	if got := Checksum(b[:offHeaderCRC]); got != crc {
		return Batch{}, 0, fmt.Errorf("%w: header checksum %08x, computed %08x", ErrCorrupt, crc, got)
	}
	n, count := le.Uint32(b[offLength:]), le.Uint32(b[offCount:])
	control := b[offControl]
	if n < HeaderSize || n > MaxBatchBytes || b[offFlags] > flagIdentified ||
		(b[offFlags] == flagControl) != (control != 0) || (control != 0) != (count == 0) {
		return Batch{}, 0, fmt.Errorf("%w: impossible header", ErrCorrupt)
	}
	at := ident.Position{Offset: ident.Offset(le.Uint64(b[offBase:])), Sequence: ident.Sequence(le.Uint64(b[offSequence:]))}
	if at.Offset < 0 || at.Offset > 1<<62 || at.Sequence > 1<<62 {
		return Batch{}, 0, fmt.Errorf("%w: impossible position", ErrCorrupt)
	}
	return Batch{
		Epoch: ident.Epoch(le.Uint64(b[offEpoch:])), At: at,
		End: ident.Position{Offset: at.Offset + ident.Offset(n), Sequence: at.Sequence + ident.Sequence(count)},
		CRC: crc, PrevCRC: le.Uint32(b[offPrev:]), Time: int64(le.Uint64(b[offTime:])),
		Count: count, Control: control,
		Request:    ident.RequestID{Producer: le.Uint64(b[offProducer:]), N: le.Uint64(b[offN:])},
		Identified: b[offFlags] == flagIdentified, Clock: Clock(le.Uint32(b[offClock:])),
	}, int(n), nil
}

// Damage is a range of the log that cannot be read: its bytes fail their checksums, or the disk returns
// an error. No byte of it was served, and nothing was cut because of it.
type Damage struct {
	From, To ident.Offset // To is an estimate unless the index has the batch
	Err      error
}

// Error names the range.
func (d *Damage) Error() string {
	return fmt.Sprintf("queue: offsets %d to %d are damaged: %v", d.From, d.To, d.Err)
}

// Unwrap returns the cause: ErrCorrupt, ErrTorn or an error of the disk.
func (d *Damage) Unwrap() error { return d.Err }
