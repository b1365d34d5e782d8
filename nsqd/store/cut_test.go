package store

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// twoBatches is a log of two batches that lie in the segments.
func twoBatches(t *testing.T, fs vfs.FS) (s *Store, p *Partition, batches []queue.Batch) {
	t.Helper()
	s = reopen(t, testOptions(fs))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2 {
		batches = append(batches, m.batch(rng, m.draft(rng)))
	}
	submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Batches: batches})
	require.NoError(t, s.Checkpoint())
	return s, p, batches
}

// cutLog is a log of which the second of two batches was cut, durably; the
// segments still hold both.
func cutLog(t *testing.T, fs vfs.FS) (s *Store, p *Partition, kept queue.Batch) {
	t.Helper()
	s, p, batches := twoBatches(t, fs)
	kept = batches[0]
	p.Index().Truncate(kept.End.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, At: kept.End, PrevCRC: kept.CRC})
	return s, p, kept
}

// TestDamageBeforeACut: the header of the batch before a cut decays. Its checksum, which the next
// batch must name, is known from the record of the cut.
func TestDamageBeforeACut(t *testing.T) {
	mem := vfstest.NewMemory()
	_, p, kept := cutLog(t, mem)
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, disk.Flip(p.segments.name(0), 8, 1))
	again := reopen(t, testOptions(disk)).Partitions()[0]
	require.Equal(t, p.StoreID(), again.StoreID())
	require.Equal(t, kept.End, again.Restored().End)
	require.Equal(t, kept.CRC, again.Restored().LastCRC)
}

// TestReadFailsAfterACut: a checkpoint is made, and the disk fails to read the batch before the
// cut. The checkpoint must not name the batch that was cut.
func TestReadFailsAfterACut(t *testing.T) {
	mem := vfstest.NewMemory()
	var failing atomic.Bool
	s, p, kept := cutLog(t, vfstest.Wrap(mem, func(op vfstest.Op) error {
		if failing.Load() && op.Call == vfstest.CallRead {
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

// TestPowerCutAfterUnsyncedCut: an unsynced group cuts the log, and a longer batch follows. The
// next start finds the group in the page cache and applies it to the segments; the power is cut
// before its checkpoint. Then the log is either the old one or the new one.
func TestPowerCutAfterUnsyncedCut(t *testing.T) {
	for name, dropped := range map[string]bool{"killed": false, "failed sync": true} {
		t.Run(name, func(t *testing.T) {
			mem := vfstest.NewMemory()
			var broken atomic.Bool
			s, p, batches := twoBatches(t, vfstest.Wrap(mem, func(op vfstest.Op) error {
				if !broken.Load() || op.Call != vfstest.CallSync {
					return nil
				}
				if dropped {
					mem.DropWriteback(op.Name)
				}
				return syscall.EIO
			}))
			broken.Store(true)
			kept, old := batches[0], batches[1]
			d := queue.NewDraft(0)
			_ = d.AddMessage(queue.Message{Body: make([]byte, 2*len(old.Bytes))})
			draft := d.Draft(ident.RequestID{Producer: 8, N: 1})
			longer := draft.Seal(kept.End, 1, kept.CRC, kept.Time)
			a := make(answer, 1)
			s.Submit([]Submission{{p, []queue.Write{{
				Kind: queue.WriteReset, Epoch: 1, At: kept.End, PrevCRC: kept.CRC, Batches: []queue.Batch{longer},
			}}}}, a, 1)
			require.Error(t, <-a)
			require.Error(t, s.Close())
			for _, left := range cutsOfStart(t, mem) {
				again := reopen(t, testOptions(left)).Partitions()[0]
				require.Equal(t, p.StoreID(), again.StoreID(), "a power cut is not corruption")
				end := border{old.End, old.CRC, old.Time}
				if again.Restored().Epoch == 1 {
					end = border{longer.End, longer.CRC, longer.Time}
				}
				checkLog(t, again, expected{end: end})
			}
		})
	}
}

// cutsOfStart starts a store and returns the disks after power cuts at each of its syncs.
func cutsOfStart(t *testing.T, mem *vfstest.Memory) []*vfstest.Memory {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	var cuts []*vfstest.Memory
	s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		if op.Call.Syncs() {
			mu.Lock()
			defer mu.Unlock()
			for range 8 {
				cuts = append(cuts, mem.CrashClone(rng))
			}
		}
		return nil
	})))
	require.NoError(t, s.Close())
	require.NotEmpty(t, cuts)
	return cuts
}
