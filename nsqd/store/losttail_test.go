package store

import (
	"fmt"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// loseTail zeroes the groups of the journal after the first `keep` of those with a message of the
// test, as a disk does that has lost synced writes.
func loseTail(t *testing.T, fs vfs.FS, keep int) {
	t.Helper()
	names, err := fs.List("data/journal")
	require.NoError(t, err)
	for _, name := range names {
		name = path.Join("data/journal", name)
		content, err := vfs.ReadFile(fs, name)
		require.NoError(t, err)
		for at := 0; at < len(content); {
			_, body, n, err := journal.DecodeGroup(content[at:])
			if err != nil {
				break
			}
			rec, _, err := DecodeRecord(body)
			require.NoError(t, err)
			if at += n; len(rec.Encoded) > 0 {
				if keep--; keep < 0 {
					f, err := fs.Open(name)
					require.NoError(t, err)
					at -= n
					_, err = f.WriteAt(make([]byte, len(content)-at), int64(at))
					require.NoError(t, err)
					require.NoError(t, f.Sync())
					break
				}
			}
		}
	}
	require.Negative(t, keep, "nothing was lost")
}

// lostCache returns the disk after a power cut that no unsynced write survives.
func lostCache(mem *vfstest.Memory) *vfstest.Memory {
	const nothing = 0 // see CrashClone
	for k := uint64(0); ; k++ {
		if rand.New(rand.NewPCG(1, k)).IntN(4) == nothing {
			return mem.CrashClone(rand.New(rand.NewPCG(1, k)))
		}
	}
}

// TestLostTail: the end of the journal reads as zeros although all of it was acknowledged many
// groups ago. No later group proves it, and it is not a torn tail.
func TestLostTail(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		for _, kept := range []int{0, 57, 99} {
			t.Run(fmt.Sprintf("nosync-%t-%d", noSync, kept), func(t *testing.T) {
				mem := vfstest.NewMemory()
				o := testOptions(mem)
				o.JournalBytes, o.CheckpointBytes, o.NoSync = 1<<20, 1<<30, noSync // a file that gets full is followed by a checkpoint, after which nothing would be lost
				s := reopen(t, o)
				p, err := s.Create("t", ident.Partition{Topic: 1})
				require.NoError(t, err)
				if !noSync { // without syncs the first file causes no checkpoint
					beginJournal(t, s, p)
				}
				m := &model{p: p, borders: []border{{}}}
				for range 100 {
					m.put(t, s, 1, 100)
				}
				wait.Until(t, func() bool {
					last, err := journal.Acknowledged(mem, "data/journal")
					return err == nil && last == s.journal.Mark().Group
				}, "the acknowledgement record is exact")
				whole := killed(mem)
				o.FS = whole
				again := reopen(t, o)
				require.Equal(t, p.StoreID(), again.Partitions()[0].StoreID(), "nothing is missing")
				require.NoError(t, again.Close())

				disk := killed(mem)
				loseTail(t, disk, kept)
				o.FS = disk
				q := reopen(t, o).Partitions()[0]
				require.NotEqual(t, p.StoreID(), q.StoreID(), "acknowledged up to %d, here %d, and still under the old store id", m.end().at.Offset, q.Restored().End.Offset)
				require.LessOrEqual(t, q.Restored().End.Offset, m.end().at.Offset, "as much as the writer has brought to the segments")
				require.GreaterOrEqual(t, q.Restored().End.Offset, m.borders[kept].at.Offset)
			})
		}
	}
}

// TestSegmentsBeyondTheJournal: the journal has lost acknowledged groups and the acknowledgement
// record. The batches that the writer had written to the segments prove it, and stay.
func TestSegmentsBeyondTheJournal(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	for range 100 {
		m.put(t, s, 1, 1500)
	}
	wait.Until(t, func() bool { return p.segments.end() > m.borders[50].at.Offset }, "the segments have half of the log")
	disk := killed(mem)
	loseTail(t, disk, 10)
	require.NoError(t, disk.Remove("data/journal/acknowledged"))
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.NotEqual(t, p.StoreID(), q.StoreID(), "acknowledged up to %d, here %d, and still under the old store id", m.end().at.Offset, q.Restored().End.Offset)
	r := q.Restored()
	require.Greater(t, r.End.Offset, m.borders[50].at.Offset, "the remaining batches are kept")
	require.Contains(t, m.borders, border{r.End, r.LastCRC, r.LastTimeNS})
	checkLog(t, q, expected{end: border{r.End, r.LastCRC, r.LastTimeNS}})
}

// TestCutSegmentsProveNothing: the segments still hold batches that a durable cut removed, and not
// yet their replacement. Nothing is missing, and the cut batches do not come back.
func TestCutSegmentsProveNothing(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	for range 100 {
		m.put(t, s, 1, 1500)
	}
	m.checkpoint(t, s)
	disk := killed(mem)
	cut := m.borders[40]
	p.Index().Truncate(cut.at.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, At: cut.at, PrevCRC: cut.crc})
	for _, name := range []string{"journal/" + path.Base(newestJournalFile(t, mem)), "journal/acknowledged", "checkpoint"} {
		b, err := vfs.ReadFile(mem, "data/"+name)
		require.NoError(t, err)
		f, err := disk.Create("data/" + name)
		require.NoError(t, err)
		_, err = f.WriteAt(b, 0)
		require.NoError(t, err)
	}
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.Equal(t, p.StoreID(), q.StoreID())
	require.Equal(t, cut.at, q.Restored().End)
}
