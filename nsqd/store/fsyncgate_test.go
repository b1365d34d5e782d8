package store

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// TestFailedSync fails one sync after the other, and the kernel drops the pages: they can be read,
// count as clean, and a later sync succeeds without them. Nothing of that sync is acknowledged, and
// the store stops. The next start writes the groups that it finds in the page cache to the disk
// again before it acknowledges.
//
// No group of the journal is synced after one that failed. The first sync of a journal file is that
// of its zeros, by another goroutine: until the writer receives its error, it continues in a file
// of its own, whose syncs work.
func TestFailedSync(t *testing.T) {
	const seed, steps = 21, 25
	for _, kind := range []string{".log", ".seg", ".idx", ".tmp"} {
		for n := int64(1); n <= 12; n++ {
			mem := vfstest.NewMemory()
			var armed, group atomic.Bool
			var syncs, after atomic.Int64
			var known sync.Map
			w, err := newWorld(t, seed, vfstest.Wrap(mem, func(op vfstest.Op) error {
				if op.Call != vfstest.CallSync || !strings.HasSuffix(op.Name, kind) {
					return nil
				}
				_, written := known.LoadOrStore(op.Name, true)
				if !armed.Load() {
					return nil
				}
				switch k := syncs.Add(1); {
				case k == n:
					group.Store(written)
					mem.DropWriteback(op.Name)
					return syscall.EIO
				case k > n && written && group.Load():
					after.Add(1)
				}
				return nil
			}))
			require.NoError(t, err)
			armed.Store(true)
			runErr := w.run(steps)
			acked := w.acked()
			closeErr := w.store.Close()
			if syncs.Load() < n {
				continue
			}
			require.ErrorIs(t, firstError(w.store.Err(), runErr, closeErr), syscall.EIO, "%s %d: the store keeps running", kind, n)
			if kind == ".log" {
				require.Zero(t, after.Load(), "a group was synced after the one that failed")
			}
			check(t, mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(n)))), w.history, storeIDs(w), acked, w.submitted())
			s := reopen(t, testOptions(mem))
			ends := goOn(t, s)
			for k := range uint64(4) {
				again := reopen(t, testOptions(mem.CrashClone(rand.New(rand.NewPCG(uint64(n), k)))))
				for i, p := range again.Partitions() {
					require.Equal(t, ends[i].at, p.Restored().End, "%s %d: acknowledged from a page that was never written", kind, n)
					checkLog(t, p, expected{end: ends[i], start: p.Start()})
				}
			}
		}
	}
}

// TestPowerCutAfterFailedSync: the next start finds the group of a failed sync in the page cache
// and writes it to the segments; the power is cut before its checkpoint. Nothing acknowledged is
// missing.
func TestPowerCutAfterFailedSync(t *testing.T) {
	mem := vfstest.NewMemory()
	var broken atomic.Bool
	w, err := newWorld(t, 3, vfstest.Wrap(mem, func(op vfstest.Op) error {
		if broken.Load() && op.Call == vfstest.CallSync {
			mem.DropWriteback(op.Name)
			return syscall.EIO
		}
		return nil
	}))
	require.NoError(t, err)
	require.NoError(t, w.run(10))
	require.NoError(t, w.store.Checkpoint())
	acked := w.acked()
	broken.Store(true)
	w.step()
	require.Error(t, w.settle())
	require.Error(t, w.store.Close())
	for _, cut := range cutsOfStart(t, mem) {
		check(t, cut, w.history, storeIDs(w), acked, w.submitted())
	}
}

// TestFullDisk fills the disk at one write after the other. The store stops. A start on the full
// disk fails or works, but removes nothing. With room again everything acknowledged exists.
func TestFullDisk(t *testing.T) {
	const seed, steps = 31, 25
	for n := int64(1); ; n += 3 {
		mem := vfstest.NewMemory()
		var writes atomic.Int64
		full := func(op vfstest.Op) error {
			if (op.Call == vfstest.CallWrite || op.Call == vfstest.CallCreate) && writes.Add(1) >= n {
				return syscall.ENOSPC
			}
			return nil
		}
		w, err := newWorld(t, seed, vfstest.Wrap(mem, full))
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			continue
		}
		_ = w.run(steps)
		acked := w.acked()
		_ = w.store.Close()
		if writes.Load() < n {
			return
		}
		if s, err := Open(testOptions(vfstest.Wrap(mem, full))); err == nil {
			_ = s.Close()
		} else {
			require.ErrorIs(t, err, syscall.ENOSPC)
		}
		check(t, mem, w.history, storeIDs(w), acked, w.submitted())
	}
}
