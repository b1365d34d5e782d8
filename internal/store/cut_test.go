package store

import (
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// cutLog is a log of which the second of two batches was cut, durably; the
// segments still hold both.
func cutLog(t *testing.T, fs vfs.FS) (s *Store, p *Partition, kept queue.Batch) {
	t.Helper()
	s = reopen(t, testOptions(fs))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	rng := rand.New(rand.NewPCG(1, 1))
	w := queue.Write{Kind: queue.WriteAppend}
	for range 2 {
		w.Batches = append(w.Batches, m.batch(rng, m.draft(rng)))
	}
	submit(t, s, p, w)
	require.NoError(t, s.Checkpoint())
	kept = w.Batches[0]
	p.Index().Truncate(kept.End.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, At: kept.End, PrevCRC: kept.CRC})
	return s, p, kept
}

// TestDamageBeforeACut: the header of the batch before a cut decays. Its checksum,
// which the next batch has to name, is known all the same.
func TestDamageBeforeACut(t *testing.T) {
	mem := vfs.NewMemory()
	_, p, kept := cutLog(t, mem)
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, disk.Flip(p.segments.Name(0), 8, 1))
	again := reopen(t, testOptions(disk)).Partitions()[0]
	require.Equal(t, p.StoreID(), again.StoreID())
	require.Equal(t, kept.End, again.Restored().End)
	require.Equal(t, kept.CRC, again.Restored().LastCRC)
}

// TestReadFailsAfterACut: the disk fails to give that batch when a checkpoint is
// made. The checkpoint must not name the batch that was cut instead.
func TestReadFailsAfterACut(t *testing.T) {
	mem := vfs.NewMemory()
	var failing atomic.Bool
	s, p, kept := cutLog(t, vfs.Wrap(mem, func(op vfs.Op) error {
		if failing.Load() && op.Call == vfs.CallRead {
			return syscall.EIO
		}
		return nil
	}))
	failing.Store(true)
	require.NoError(t, s.Checkpoint())
	again := reopen(t, testOptions(mem.CrashClone(rand.New(rand.NewPCG(1, 1))))).Partitions()[0]
	require.Equal(t, p.StoreID(), again.StoreID())
	require.Equal(t, kept.CRC, again.Restored().LastCRC)
}
