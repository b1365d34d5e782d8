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

// channels.snap: on disk, by place, append only; little-endian. Magic "LKC1" (4), crc of everything after
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

// addVersion adds a version to a history that begins with a full one. It ignores versions that are
// there already: the snapshot may be newer than the checkpoint.
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
		return history // the version before it is lost: the leader sends a full version when this replica reports its own
	}
	return append(history, c)
}
