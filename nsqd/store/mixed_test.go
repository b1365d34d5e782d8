package store

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// mixed is a store with one partition whose durability may change.
func mixed(t *testing.T, fs vfs.FS, checkpointBytes int64) (Options, *Store, *model) {
	t.Helper()
	o := testOptions(fs)
	o.Mixed, o.CheckpointBytes = true, checkpointBytes
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	return o, s, &model{p: p, borders: []border{{}}}
}

// TestPowerCutAfterAChangeOfDurability: after a power cut, everything that was acknowledged with
// syncs exists, under the same store id, and so does everything acknowledged from the page cache
// before. Without syncs a power cut renews the store id.
func TestPowerCutAfterAChangeOfDurability(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []bool
		synced  bool
	}{
		{"synced from the start", nil, true},
		{"no longer", []bool{false}, false},
		{"synced again", []bool{false, true}, true},
		{"and no longer again", []bool{false, true, false}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfstest.NewMemory()
			o, s, m := mixed(t, mem, 0)
			m.put(t, s, 5, 1000)
			for _, on := range c.changes {
				require.NoError(t, s.SetSync(on))
				require.Equal(t, on, s.Synced())
				m.put(t, s, 5, 1000)
			}
			o.FS, o.BootID = lostCache(mem), "another"
			q := reopen(t, o).Partitions()[0]
			if !c.synced {
				require.NotEqual(t, m.p.StoreID(), q.StoreID())
				return
			}
			require.Equal(t, m.p.StoreID(), q.StoreID())
			require.Equal(t, m.end().at, q.Restored().End)
			checkLog(t, q, expected{end: m.end()})
		})
	}
}

// TestPowerCutDuringAChangeOfDurability: after a power cut at any disk call, everything
// acknowledged before it exists, or the store id is new.
func TestPowerCutDuringAChangeOfDurability(t *testing.T) {
	type cut struct {
		disk         *vfstest.Memory
		acknowledged ident.Offset
	}
	var acknowledged atomic.Int64
	var mu sync.Mutex
	var cuts []cut
	mem := vfstest.NewMemory()
	o, s, m := mixed(t, vfstest.Wrap(mem, func(vfstest.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if at := acknowledged.Load(); at > 0 {
			cuts = append(cuts, cut{lostCache(mem), ident.Offset(at)})
		}
		return nil
	}), 2<<10) // further checkpoints come between those of the changes
	put := func() {
		m.put(t, s, 1, 500)
		acknowledged.Store(int64(m.end().at.Offset))
	}
	put()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := range 10 {
			if err := s.SetSync(n%2 == 1); err != nil {
				t.Error(err)
			}
		}
	}()
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		put()
	}
	mu.Lock()
	acknowledged.Store(0)
	mu.Unlock()
	require.NotEmpty(t, cuts)
	same := 0
	o.BootID = "another"
	for _, c := range cuts {
		o.FS = c.disk
		after, err := Open(o)
		require.NoError(t, err)
		q := after.Partitions()[0]
		if q.StoreID() == m.p.StoreID() {
			same++
			require.GreaterOrEqual(t, q.Restored().End.Offset, c.acknowledged, "acknowledged bytes are missing and the store is the same")
		}
		require.NoError(t, after.Close())
	}
	require.NotZero(t, same)
	require.Less(t, same, len(cuts))
}
