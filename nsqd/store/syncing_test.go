package store

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// together is a store whose partitions are all changed, on a disk that counts its syncs.
type together struct {
	t      *testing.T
	mem    *vfstest.Memory
	s      *Store
	models []*model
	disk   func() error // called for a sync of the whole disk
	file   func(name string) error
	disks  atomic.Int32 // syncs of the whole disk
	files  atomic.Int32 // syncs of files and folders of partitions
}

func newTogether(t *testing.T, partitions int) *together {
	g := &together{t: t, mem: vfstest.NewMemory()}
	o := testOptions(vfstest.Wrap(g.mem, func(op vfstest.Op) error {
		switch {
		case op.Call == vfstest.CallSyncDisk:
			g.disks.Add(1)
			if g.disk != nil {
				return g.disk()
			}
		case op.Call.Syncs() && strings.Contains(op.Name, "/topics/"):
			g.files.Add(1)
			if g.file != nil {
				return g.file(op.Name)
			}
		}
		return nil
	}))
	o.CheckpointBytes = 1 << 30 // no checkpoint but the requested ones
	g.s = reopen(t, o)
	for n := range partitions {
		p, err := g.s.Create("t", ident.Partition{Topic: 1, Number: uint16(n)})
		require.NoError(t, err)
		g.models = append(g.models, &model{p: p, borders: []border{{}}})
	}
	g.change(1)
	require.NoError(t, g.s.Checkpoint())
	g.change(1)
	g.disks.Store(0)
	g.files.Store(0)
	return g
}

func (g *together) change(n int) {
	for _, m := range g.models {
		m.put(g.t, g.s, n, 100)
	}
}

// afterCut checks that a start after a power cut has everything that was put.
func (g *together) afterCut() {
	for seed := range uint64(8) {
		o := testOptions(g.mem.CrashClone(rand.New(rand.NewPCG(seed, 9))))
		for i, p := range reopen(g.t, o).Partitions() {
			require.Equal(g.t, g.models[i].end().at, p.Restored().End)
			checkLog(g.t, p, expected{end: g.models[i].end()})
		}
	}
}

// TestSyncsOfManyPartitions: a checkpoint of many partitions syncs the disk once, and once more if channel states have
// changed; one of few partitions syncs each file.
func TestSyncsOfManyPartitions(t *testing.T) {
	g := newTogether(t, manyPartitions)
	require.NoError(t, g.s.Checkpoint())
	require.Equal(t, []int32{1, 0}, []int32{g.disks.Load(), g.files.Load()})
	g.afterCut()

	g.change(1)
	state := queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: 1, Full: true, Delta: []byte("s")}}
	submit(t, g.s, g.models[3].p, state)
	require.NoError(t, g.s.Checkpoint())
	require.Equal(t, []int32{3, 0}, []int32{g.disks.Load(), g.files.Load()})
	g.afterCut()

	g.models[7].put(t, g.s, 1, 100)
	require.NoError(t, g.s.Checkpoint())
	require.Equal(t, []int32{3, 2}, []int32{g.disks.Load(), g.files.Load()}, "one segment and its index")
}

// TestFailedSyncOfTheDisk: the failed write was of another process, so that the syncs of the files succeed and the
// store continues; or it was of a segment, whose sync reports it, and the store stops.
func TestFailedSyncOfTheDisk(t *testing.T) {
	for _, own := range []bool{false, true} {
		for failing := 1; failing <= 2; failing++ {
			g := newTogether(t, manyPartitions)
			for _, m := range g.models {
				submit(t, g.s, m.p, queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: 1, Full: true, Delta: []byte("s")}})
			}
			lost := g.models[5].p.segments.name(0)
			g.disk = func() error {
				if g.disks.Load() != int32(failing) {
					return nil
				}
				if own {
					g.mem.DropWriteback(lost)
				}
				return syscall.EIO
			}
			g.file = func(name string) error {
				if own && name == lost {
					return syscall.EIO
				}
				return nil
			}
			err := g.s.Checkpoint()
			if own {
				require.ErrorIs(t, err, syscall.EIO)
				require.ErrorIs(t, g.s.Err(), syscall.EIO)
			} else {
				require.NoError(t, err)
				require.Greater(t, g.files.Load(), int32(4*manyPartitions-1), "segment, index, snapshot, folder")
				g.change(1)
			}
			g.afterCut()
		}
	}
}

// TestChangesDuringASyncOfTheDisk: what changed after the sync began is not taken for durable.
func TestChangesDuringASyncOfTheDisk(t *testing.T) {
	s := &segments{unsynced: map[ident.Offset]struct{}{}}
	s.changed(0)
	before := s.changes
	s.changed(100)
	s.dirUnsynced = true
	s.noteSynced(before)
	require.Len(t, s.unsynced, 2)
	require.True(t, s.dirUnsynced)
	s.noteSynced(s.changes)
	require.Empty(t, s.unsynced)
	require.False(t, s.dirUnsynced)
}

// TestRemovalsOfAKilledProcess may be in the page cache only: the first sync of the next process makes them durable.
func TestRemovalsOfAKilledProcess(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	for _, name := range []string{"p/00000000000000000000.seg", "p/00000000000000000100.seg"} {
		_, err := fs.Create(name)
		require.NoError(t, err)
	}
	require.NoError(t, fs.SyncDir("."))
	require.NoError(t, fs.SyncDir("p"))
	require.NoError(t, fs.Remove("p/00000000000000000000.seg"))
	s, err := openSegments(fs, vfs.NewCache(fs, 2), "p", 1<<20)
	require.NoError(t, err)
	require.NoError(t, s.sync())
	for seed := range uint64(50) {
		names, err := fs.CrashClone(rand.New(rand.NewPCG(seed, 0))).List("p")
		require.NoError(t, err)
		require.Equal(t, []string{"00000000000000000100.seg"}, names)
	}
}

// TestRepairOutsideTheSegments writes nothing, and is refused.
func TestRepairOutsideTheSegments(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	s, err := openSegments(fs, vfs.NewCache(fs, 2), "p", 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, s.repair([]queue.Batch{{At: ident.Position{Offset: 4096}, End: ident.Position{Offset: 4196}}}), errNoPlace)
}
