package store

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// cut is a disk after a power cut, and the submissions acknowledged before it.
type cut struct {
	fs               *vfstest.Memory
	w                *world
	acked, submitted int
}

// cutter cuts the power before every sync.
type cutter struct {
	mu   sync.Mutex
	rng  *rand.Rand
	mem  *vfstest.Memory
	w    *world
	last cut // without w: the store is being opened on what this left
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
	now := c.last
	if c.w != nil {
		now = cut{w: c.w, acked: c.w.acked()} // read before the clone, submitted after it: never too strict
	}
	if now.w == nil {
		return
	}
	if now.fs = c.mem.CrashClone(c.rng); c.w != nil {
		now.submitted = c.w.submitted()
	}
	c.cuts = append(c.cuts, now)
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

// life is one process on a disk: the power is cut before many of its syncs, and it may be killed, or fail to sync.
type life struct {
	cutter
	calls, killAt, failAt int // disk calls so far; the call at which it ends, the one from which the next sync fails; 0: none
}

func (l *life) hook(op vfstest.Op) error {
	l.mu.Lock()
	l.calls++
	reads := op.Call == vfstest.CallRead || op.Call == vfstest.CallOpen || op.Call == vfstest.CallList
	kill := l.killAt > 0 && l.calls >= l.killAt && !reads
	fail := l.failAt > 0 && l.calls >= l.failAt && op.Call == vfstest.CallSync
	full := len(l.cuts) >= 30
	if fail && !kill {
		l.failAt = 0
		l.mem.DropWriteback(op.Name)
	}
	l.mu.Unlock()
	switch {
	case kill:
		return errKilled
	case fail:
		return syscall.EIO
	case full:
		return nil
	}
	return l.cutter.hook(op)
}

// kill lets no further call change the disk.
func (l *life) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killAt = 1
}

// TestManyLives ends process after process by a power cut, a kill, a failed sync or a close. The power is also cut before
// many of their syncs, those of the recoveries included. Each start must find everything acknowledged, and the same
// store ids.
func TestManyLives(t *testing.T) {
	cuts := 0
	for seed := range seeds(t, 20) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 4))
		mem := vfstest.NewMemory()
		w, err := newWorld(t, seed, mem)
		require.NoError(t, err)
		require.NoError(t, w.run(rng.IntN(4)))
		require.NoError(t, w.store.Close())
		ids, last := storeIDs(w), cut{mem, w, w.acked(), w.submitted()}
		for range 5 {
			l := &life{cutter: cutter{mem: last.fs, rng: rand.New(rand.NewPCG(rng.Uint64(), 5)), last: last}}
			switch rng.IntN(4) {
			case 0:
				l.killAt = 1 + rng.IntN(300)
			case 1:
				l.failAt = 1 + rng.IntN(200)
			}
			last = l.run(t, ids, rng)
			for _, cut := range l.cuts {
				left := cut
				left.fs = cut.fs.CrashClone(rng) // the same: check uses cut.fs up
				check(t, cut.fs, cut.w.history, ids, cut.acked, cut.submitted)
				if rng.IntN(len(l.cuts)) == 0 {
					last = left
				}
			}
			cuts += len(l.cuts)
		}
	}
	t.Logf("%d power cuts", cuts)
}

// run opens the store and continues the history until the process ends, and returns what it leaves.
func (l *life) run(t *testing.T, ids []ident.StoreID, rng *rand.Rand) cut {
	t.Helper()
	s, err := Open(eitherSync(testOptions(vfstest.Wrap(l.mem, l.hook)), rng.Uint64()))
	if err != nil {
		return l.last
	}
	checkStore(t, s, l.last.w.history, ids, l.last.acked, l.last.submitted)
	w := l.last.w.reopened(s)
	l.arm(w)
	_ = w.run(rng.IntN(12)) // it may be killed
	if rng.IntN(3) > 0 {
		l.kill()
	}
	_ = s.Close()
	return cut{l.mem, w, w.acked(), w.submitted()}
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
