package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Record describes one batch: a fixed-size entry of the commit log.
type Record struct {
	Epoch  ident.Epoch
	First  ident.Sequence // base sequence
	Offset ident.Offset   // where the batch begins
	TimeMS int64          // unix ms of the batch
	Size   uint32         // bytes of the batch
	Count  uint32         // messages; 0 for a control batch
	CRC    uint32         // header checksum of the batch
	// PrevCRC is the header checksum of the previous batch: the chain of the log at this position, also after retention
	// has removed that batch.
	PrevCRC uint32
	// Identified: messages of the batch have identities (queue.Identity).
	Identified bool
}

// End is the position after the batch.
func (r Record) End() ident.Position {
	return ident.Position{Offset: r.Offset + ident.Offset(r.Size), Sequence: r.First + ident.Sequence(r.Count)}
}

// EpochEnd is the range [Start, End) of the log that was written in one epoch. Reconciliation
// compares the tables of two replicas.
type EpochEnd struct {
	Epoch      ident.Epoch
	Start, End ident.Position
}

// RecordSize is the length of an encoded record in bytes.
const RecordSize = 56

// flagIdentified is a flag of a record. On disk: append only.
const flagIdentified = 1

// errCorrupt means that the checksum or a field of a record is wrong.
var errCorrupt = errors.New("commitlog: record is corrupt")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendTo appends the encoded record to b. On disk, by position, append only: see doc.go.
func (r Record) AppendTo(b []byte) []byte {
	at := len(b)
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(r.Epoch))
	b = le.AppendUint64(b, uint64(r.First))
	b = le.AppendUint64(b, uint64(r.Offset))
	b = le.AppendUint64(b, uint64(r.TimeMS))
	b = le.AppendUint32(b, r.Count)
	b = le.AppendUint32(b, r.Size)
	b = le.AppendUint32(b, r.CRC)
	b = le.AppendUint32(b, r.PrevCRC)
	var flags uint32
	if r.Identified {
		flags = flagIdentified
	}
	b = le.AppendUint32(b, flags)
	return le.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// Decode decodes the record at the beginning of b. Error: errCorrupt.
func Decode(b []byte) (Record, error) {
	if len(b) < RecordSize {
		return Record{}, fmt.Errorf("%w: %d bytes", errCorrupt, len(b))
	}
	le := binary.LittleEndian
	if got, want := crc32.Checksum(b[:52], castagnoli), le.Uint32(b[52:]); got != want {
		return Record{}, fmt.Errorf("%w: checksum %08x, computed %08x", errCorrupt, want, got)
	}
	r := Record{
		Epoch:   ident.Epoch(le.Uint64(b)),
		First:   ident.Sequence(le.Uint64(b[8:])),
		Offset:  ident.Offset(le.Uint64(b[16:])),
		TimeMS:  int64(le.Uint64(b[24:])),
		Count:   le.Uint32(b[32:]),
		Size:    le.Uint32(b[36:]),
		CRC:     le.Uint32(b[40:]),
		PrevCRC: le.Uint32(b[44:]),

		Identified: le.Uint32(b[48:]) == flagIdentified,
	}
	if r.Size == 0 || le.Uint32(b[48:])&^flagIdentified != 0 || r.Offset < 0 || r.Offset > 1<<62 || r.First > 1<<62 {
		return Record{}, fmt.Errorf("%w: impossible record", errCorrupt) // a page of zeros has size 0
	}
	return r, nil
}
