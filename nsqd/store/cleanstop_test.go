package store

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// unsynced is a store with one partition that acknowledges from the page cache.
func unsynced(t *testing.T, fs vfs.FS) (Options, *Store, *model) {
	t.Helper()
	o := testOptions(fs)
	o.NoSync = true
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	return o, s, &model{p: p, borders: []border{{}}}
}

// TestCleanStopThenReboot: a store that acknowledges from the page cache was closed, so everything
// is on the disk, and another boot of the machine loses nothing.
func TestCleanStopThenReboot(t *testing.T) {
	mem := vfstest.NewMemory()
	o, s, m := unsynced(t, mem)
	m.put(t, s, 30, 1000)
	require.NoError(t, s.Close())
	for _, disk := range []*vfstest.Memory{lostCache(mem), killed(mem)} {
		for _, noSync := range []bool{true, false} {
			o := o
			o.FS, o.BootID, o.NoSync = disk, "another", noSync
			s := reopen(t, o)
			q := s.Partitions()[0]
			require.Equal(t, m.p.StoreID(), q.StoreID(), "nothing was lost")
			require.Equal(t, m.end().at, q.Restored().End)
			checkLog(t, q, expected{end: m.end()})
			require.NoError(t, s.Close())
		}
	}
}

// TestCleanMarkGoesBeforeTheFirstWrite: a store that was closed and started again, and whose
// machine then failed, does not count as closed.
func TestCleanMarkGoesBeforeTheFirstWrite(t *testing.T) {
	mem := vfstest.NewMemory()
	o, s, m := unsynced(t, mem)
	m.put(t, s, 3, 100)
	require.NoError(t, s.Close())
	s = reopen(t, o)
	m.p = s.Partitions()[0]
	for _, disk := range []*vfstest.Memory{lostCache(mem), killed(mem)} {
		c, err := readCheckpoint(disk, s.checkpointName())
		require.NoError(t, err)
		require.False(t, c.clean, "before anything can be submitted")
	}
	m.put(t, s, 1, 100)
	for _, disk := range []*vfstest.Memory{lostCache(mem), killed(mem)} {
		o := o
		o.FS, o.BootID = disk, "another"
		require.NotEqual(t, m.p.StoreID(), reopen(t, o).Partitions()[0].StoreID())
	}
}

// TestStartThatIsCutShortKeepsTheCleanMark: nothing is acknowledged before the first checkpoint of
// a start.
func TestStartThatIsCutShortKeepsTheCleanMark(t *testing.T) {
	mem := vfstest.NewMemory()
	o, s, m := unsynced(t, mem)
	m.put(t, s, 3, 100)
	require.NoError(t, s.Close())
	broken := o
	broken.FS = vfstest.Wrap(mem, func(op vfstest.Op) error {
		if strings.HasPrefix(op.Name, "data/checkpoint") && op.Call != vfstest.CallOpen && op.Call != vfstest.CallRead {
			return errKilled
		}
		return nil
	})
	_, err := Open(broken)
	require.ErrorIs(t, err, errKilled)
	o.FS, o.BootID = lostCache(mem), "another"
	require.Equal(t, m.p.StoreID(), reopen(t, o).Partitions()[0].StoreID())
}

// TestFailedCloseIsNotClean: writes whose last sync failed may be lost.
func TestFailedCloseIsNotClean(t *testing.T) {
	for _, kind := range []string{".seg", "checkpoint.tmp"} {
		mem := vfstest.NewMemory()
		var armed atomic.Bool
		o, s, m := unsynced(t, vfstest.Wrap(mem, func(op vfstest.Op) error {
			if armed.Load() && op.Call == vfstest.CallSync && strings.HasSuffix(op.Name, kind) {
				return syscall.EIO
			}
			return nil
		}))
		m.put(t, s, 3, 100)
		armed.Store(true)
		require.ErrorIs(t, s.Close(), syscall.EIO)
		o.FS, o.BootID = killed(mem), "another"
		require.NotEqual(t, m.p.StoreID(), reopen(t, o).Partitions()[0].StoreID(), kind)
	}
}

// TestCleanMarkContradictedByTheJournal: the disk has lost the checkpoint of the last start, which
// cleared the mark, and shows the one before. The later groups show that groups before them are
// missing.
func TestCleanMarkContradictedByTheJournal(t *testing.T) {
	mem := vfstest.NewMemory()
	o, s, m := unsynced(t, mem)
	m.put(t, s, 3, 100)
	require.NoError(t, s.Close())
	clean, err := vfs.ReadFile(mem, s.checkpointName())
	require.NoError(t, err)
	s = reopen(t, o)
	m.p = s.Partitions()[0]
	m.put(t, s, 3, 100)
	disk := killed(mem)
	require.NoError(t, writeFile(disk, s.checkpointName(), clean))
	require.NoError(t, disk.Remove("data/journal/acknowledged")) // it also proves the loss
	o.FS, o.BootID = disk, "another"
	require.NotEqual(t, m.p.StoreID(), reopen(t, o).Partitions()[0].StoreID())
}

// TestStaleSnapshot: the disk shows the channel snapshot from before a checkpoint, or none. The
// journal does not have the later versions any more.
func TestStaleSnapshot(t *testing.T) {
	for name, harm := range map[string]func(fs vfs.FS, name string, old []byte) error{
		"nothing": func(vfs.FS, string, []byte) error { return nil },
		"older":   writeFile,
		"removed": func(fs vfs.FS, name string, _ []byte) error { return fs.Remove(name) },
	} {
		mem, o, s, p := alone(t, 1<<30)
		writeState := func(n uint64) {
			submit(t, s, p, queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: n, Full: n == 1, Delta: []byte{byte(n)}}})
			wait.Until(t, func() bool {
				require.NoError(t, s.Checkpoint())
				p.files.Lock()
				defer p.files.Unlock()
				return len(p.durable.history) == int(n) && !p.durable.historyDirty
			}, "a checkpoint has the version")
		}
		writeState(1)
		at := p.dir + "/" + snapshotName
		old, err := vfs.ReadFile(mem, at)
		require.NoError(t, err)
		writeState(2)
		writeState(3)
		disk := killed(mem)
		require.NoError(t, harm(disk, at, old))
		o.FS = disk
		q := reopen(t, o).Partitions()[0]
		if name == "nothing" {
			require.Equal(t, p.StoreID(), q.StoreID())
			require.EqualValues(t, 3, q.Restored().State.N)
		} else {
			require.NotEqual(t, p.StoreID(), q.StoreID(), "%s: channels at version %d of 3, and still under the old store id", name, q.Restored().State.N)
		}
	}
}
