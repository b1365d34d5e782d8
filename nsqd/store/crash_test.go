package store

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// cut is a disk after a power cut, and the submissions acknowledged before it.
type cut struct {
	fs               *vfstest.Memory
	acked, submitted int
}

// cutter cuts the power before every sync.
type cutter struct {
	mu   sync.Mutex
	rng  *rand.Rand
	mem  *vfstest.Memory
	w    *world
	cuts []cut
}

func (c *cutter) hook(op vfstest.Op) error {
	if op.Call.Syncs() {
		c.take()
	}
	return nil
}

func (c *cutter) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w == nil {
		return
	}
	acked := c.w.acked() // read before the clone, submitted after it: never too strict
	clone := c.mem.CrashClone(c.rng)
	c.cuts = append(c.cuts, cut{clone, acked, c.w.submitted()})
}

func (c *cutter) arm(w *world) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w = w
}

// TestPowerCut cuts the power before every sync of random histories and at random moments.
// Afterwards everything acknowledged must exist, in all partitions as of one moment, and no store
// id may change.
func TestPowerCut(t *testing.T) {
	points, histories := 0, 0
	for seed := range seeds(t, 5) {
		histories++
		t.Logf("seed %d", seed)
		c := &cutter{mem: vfstest.NewMemory(), rng: rand.New(rand.NewPCG(seed, 2))}
		w, err := newWorld(t, seed, vfstest.Wrap(c.mem, c.hook))
		require.NoError(t, err)
		c.arm(w)
		for range 6 {
			require.NoError(t, w.run(8))
			c.take()
		}
		c.arm(nil)
		require.NoError(t, w.store.Close())
		ids := storeIDs(w)
		for _, cut := range c.cuts {
			check(t, cut.fs, w.history, ids, cut.acked, cut.submitted)
		}
		last := w.submitted()
		check(t, c.mem, w.history, ids, last, last)
		points += len(c.cuts)
	}
	t.Logf("%d power cuts", points)
	require.Greater(t, points, 30*histories)
}

// TestPowerCutInRecovery cuts the power again while a store recovers, at every
// sync of the recovery.
func TestPowerCutInRecovery(t *testing.T) {
	for seed := range seeds(t, 4) {
		seed += 100
		mem := vfstest.NewMemory()
		w, err := newWorld(t, seed, mem)
		require.NoError(t, err)
		require.NoError(t, w.run(25))
		rng := rand.New(rand.NewPCG(seed, 3))
		left := mem.CrashClone(rng)
		last := w.submitted()
		require.NoError(t, w.store.Close())
		var again []*vfstest.Memory
		var mu sync.Mutex
		fs := vfstest.Wrap(left, func(op vfstest.Op) error {
			if op.Call.Syncs() {
				mu.Lock()
				defer mu.Unlock()
				again = append(again, left.CrashClone(rng))
			}
			return nil
		})
		check(t, fs, w.history, storeIDs(w), last, last)
		require.NotEmpty(t, again)
		for _, fs := range again {
			check(t, fs, w.history, storeIDs(w), last, last)
		}
	}
}

func storeIDs(w *world) []ident.StoreID {
	ids := make([]ident.StoreID, len(w.models))
	for i, m := range w.models {
		ids[i] = m.p.StoreID()
	}
	return ids
}

// TestModeChanged: a store writes without syncs, the power is cut, and it starts with syncs.
// Acknowledged data that is lost must not be under the old store id.
func TestModeChanged(t *testing.T) {
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.NoSync = true
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	id := p.StoreID()
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 3, 100) // acknowledged
	for seed := uint64(0); ; seed++ {
		o.FS = mem.CrashClone(rand.New(rand.NewPCG(seed, 1)))
		o.NoSync, o.BootID = false, "another"
		again := reopen(t, o)
		q := again.Partitions()[0]
		if q.Restored().End == m.end().at {
			continue // this cut lost nothing
		}
		require.NotEqual(t, id, q.StoreID(), "acknowledged up to %d, here %d, and still under the old store id", m.end().at.Offset, q.Restored().End.Offset)
		return
	}
}

// TestNestedDir: two levels of the data path are new.
func TestNestedDir(t *testing.T) {
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.Dir = "var/lockstep/n1"
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 3, 100)
	for i := range uint64(20) {
		o.FS = mem.CrashClone(rand.New(rand.NewPCG(i, 2)))
		again := reopen(t, o)
		require.Len(t, again.Partitions(), 1, "seed %d: all is gone", i)
		_ = again.Close()
	}
}
