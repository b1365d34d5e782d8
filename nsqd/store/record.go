package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// ErrCorrupt means that the content of a file is wrong.
var ErrCorrupt = errors.New("store: corrupt")

const (
	recordHeaderSize = 48
	flagFull         = 1
)

// Record is one write in the journal. On disk, by position, append only: see doc.go.
type Record struct {
	queue.Write
	Slot    uint64
	Encoded []byte // the write's batches; Write.Batches is empty
}

// appendRecord encodes a write at the end of b.
func appendRecord(b []byte, slot uint64, w *queue.Write) []byte {
	at := len(b)
	le := binary.LittleEndian
	epoch, sequence, flags := uint64(w.Epoch), uint64(w.At.Sequence), byte(0)
	if w.Kind == queue.WriteState {
		epoch, sequence = uint64(w.State.Epoch), w.State.N
		if w.State.Full {
			flags = flagFull
		}
	}
	b = append(b, 0, 0, 0, 0, byte(w.Kind), flags, 0, 0)
	b = le.AppendUint64(b, slot)
	b = le.AppendUint64(b, epoch)
	b = le.AppendUint64(b, uint64(w.At.Offset))
	b = le.AppendUint64(b, sequence)
	b = le.AppendUint32(b, w.PrevCRC)
	b = append(b, 0, 0, 0, 0)
	switch w.Kind {
	case queue.WriteState:
		b = append(b, w.State.Delta...)
	case queue.WriteIdentities:
		for _, n := range markNumbers(w.Identities) {
			b = le.AppendUint64(b, n)
		}
	}
	for i := range w.Batches {
		b = append(b, w.Batches[i].Bytes...)
	}
	le.PutUint32(b[at:], uint32(len(b)-at))
	return b
}

// DecodeRecord decodes the first record of a group's body, which it aliases, and its length. Error: ErrCorrupt.
func DecodeRecord(b []byte) (Record, int, error) {
	if len(b) < recordHeaderSize {
		return Record{}, 0, fmt.Errorf("%w: %d bytes are no record", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	n := int(le.Uint32(b))
	if n < recordHeaderSize || n > len(b) {
		return Record{}, 0, fmt.Errorf("%w: record of %d bytes in %d", ErrCorrupt, n, len(b))
	}
	r := Record{Slot: le.Uint64(b[8:]), Encoded: b[recordHeaderSize:n:n]}
	r.Kind, r.Epoch, r.PrevCRC = queue.WriteKind(b[4]), ident.Epoch(le.Uint64(b[16:])), le.Uint32(b[40:])
	r.At = position(le.Uint64(b[24:]), le.Uint64(b[32:]))
	if r.Kind < queue.WriteAppend || r.Kind > queue.WriteIdentities || b[5]&^flagFull != 0 {
		return Record{}, 0, fmt.Errorf("%w: record of kind %d", ErrCorrupt, r.Kind)
	}
	switch r.Kind {
	case queue.WriteIdentities:
		var numbers [identityNumbers]uint64
		if len(r.Encoded) != 8*len(numbers) {
			return Record{}, 0, fmt.Errorf("%w: identity mark of %d bytes", ErrCorrupt, len(r.Encoded))
		}
		for i := range numbers {
			numbers[i] = le.Uint64(r.Encoded[8*i:])
		}
		r.Identities, r.Encoded = markOf(numbers), nil
	case queue.WriteState:
		r.State = queue.StateVersion{Epoch: r.Epoch, N: uint64(r.At.Sequence), Full: b[5] == flagFull, Delta: r.Encoded}
		r.Encoded, r.At = nil, ident.Position{}
	}
	return r, n, nil
}

// identityNumbers are the numbers of an identity mark on disk.
const identityNumbers = 4

func markNumbers(m queue.IdentityMark) [identityNumbers]uint64 {
	return [identityNumbers]uint64{uint64(m.From), uint64(m.End), uint64(m.ClockMS), uint64(m.Forgotten)}
}

func markOf(n [identityNumbers]uint64) queue.IdentityMark {
	return queue.IdentityMark{From: ident.Offset(n[0]), End: ident.Offset(n[1]), ClockMS: int64(n[2]), Forgotten: queue.Clock(n[3])}
}

// channels.snap: on disk, by position, append only; little-endian. Magic "LKC1" (4), crc of everything after
// it (4), then versions of the channel state, beginning with a full one: epoch (8), number (8), full (1),
// zero (3), length (4), the delta.
const (
	snapshotName       = "channels.snap"
	snapshotMagic      = 0x31434b4c
	snapshotHeaderSize = 8
	snapshotEntrySize  = 24
)

func encodeSnapshot(versions []queue.StateVersion) []byte {
	le := binary.LittleEndian
	b := make([]byte, snapshotHeaderSize)
	le.PutUint32(b, snapshotMagic)
	for _, c := range versions {
		full := byte(0)
		if c.Full {
			full = 1
		}
		b = le.AppendUint64(b, uint64(c.Epoch))
		b = le.AppendUint64(b, c.N)
		b = append(b, full, 0, 0, 0)
		b = le.AppendUint32(b, uint32(len(c.Delta)))
		b = append(b, c.Delta...)
	}
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

func decodeSnapshot(b []byte) ([]queue.StateVersion, error) {
	le := binary.LittleEndian
	if len(b) < snapshotHeaderSize || le.Uint32(b) != snapshotMagic || le.Uint32(b[4:]) != crc32.Checksum(b[8:], castagnoli) {
		return nil, fmt.Errorf("%w: channel snapshot of %d bytes", ErrCorrupt, len(b))
	}
	var versions []queue.StateVersion
	for b = b[snapshotHeaderSize:]; len(b) > 0; {
		if len(b) < snapshotEntrySize || uint64(len(b)) < snapshotEntrySize+uint64(le.Uint32(b[20:])) {
			return nil, fmt.Errorf("%w: channel snapshot is cut short", ErrCorrupt)
		}
		n := snapshotEntrySize + int(le.Uint32(b[20:]))
		versions = append(versions, queue.StateVersion{
			Epoch: ident.Epoch(le.Uint64(b)), N: le.Uint64(b[8:]), Full: b[16] == 1, Delta: b[snapshotEntrySize:n:n],
		})
		b = b[n:]
	}
	return versions, nil
}

func readSnapshot(fs vfs.FS, dir string) ([]queue.StateVersion, error) {
	b, err := vfs.ReadFile(fs, dir+"/"+snapshotName)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeSnapshot(b)
}

// addVersion adds a version to a history that begins with a full one, unless it is there already.
func addVersion(history []queue.StateVersion, c queue.StateVersion) []queue.StateVersion {
	if n := len(history); n > 0 {
		last := history[n-1]
		if c.Epoch < last.Epoch || c.Epoch == last.Epoch && c.N <= last.N && !(c.Full && c.N == last.N) {
			return history
		}
	}
	if c.Full {
		return append(history[:0:0], c)
	}
	if n := len(history); n == 0 || c.Epoch != history[n-1].Epoch || c.N != history[n-1].N+1 {
		return history // the previous version is lost: the leader will send a full version when this replica reports its own
	}
	return append(history, c)
}
