package store

import (
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// gauge counts its concurrent holders.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) hold(d time.Duration) {
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
	time.Sleep(d)
	g.now.Add(-1)
}

// TestCheckpointIsPaced: a checkpoint without a waiting caller syncs one partition at a time,
// because puts share the disk with it. A requested one does not wait.
func TestCheckpointIsPaced(t *testing.T) { synctest.Test(t, testCheckpointIsPaced) }

func testCheckpointIsPaced(t *testing.T) {
	var syncing gauge
	var checkpoints atomic.Int32
	o := testOptions(vfstest.Wrap(vfstest.NewMemory(), func(op vfstest.Op) error {
		switch {
		case op.Call == vfstest.CallRename && path.Base(op.Name) == "checkpoint.tmp":
			checkpoints.Add(1)
		case op.Call == vfstest.CallSync && strings.Contains(op.Name, "/topics/"):
			syncing.hold(100 * time.Microsecond) // the duration of a disk's sync
		}
		return nil
	}))
	const partitions = 64
	o.CheckpointBytes = gatherWorks * 100 // a put takes more
	o.SyncTogether = partitions + 1
	s := reopen(t, o)
	var models []*model
	for n := range partitions {
		p, err := s.Create("t", ident.Partition{Topic: 1, Number: uint16(n)})
		require.NoError(t, err)
		models = append(models, &model{p: p, borders: []border{{}}})
	}
	dirty := func(puts int) {
		for n := range puts {
			models[n%partitions].put(t, s, 1, 100)
		}
	}
	// The first group in a new journal requests a checkpoint, in the middle of the puts that follow. After
	// this one only the last of gatherWorks puts does, so that the journal does not grow in between.
	dirty(1)
	require.NoError(t, s.Checkpoint())
	before := checkpoints.Load()
	syncing.most.Store(0)
	dirty(gatherWorks)
	synctest.Wait()
	time.Sleep(time.Minute) // of the bubble
	require.Greater(t, checkpoints.Load(), before)
	require.EqualValues(t, 1, syncing.most.Load(), "partitions synced at once")

	dirty(partitions)
	require.NoError(t, s.Checkpoint())
	require.Greater(t, syncing.most.Load(), int32(1), "a caller waits")

	syncing.most.Store(0)
	dirty(gatherWorks)
	time.Sleep(time.Millisecond)
	require.EqualValues(t, 1, syncing.most.Load(), "in the middle of a paced one")
	require.NoError(t, s.Checkpoint())
	require.Greater(t, syncing.most.Load(), int32(1), "a caller waits for the next one")
}

// TestForEachPaced: as many at once as are needed to keep up, and an error ends it.
func TestForEachPaced(t *testing.T) { synctest.Test(t, testForEachPaced) }

func testForEachPaced(t *testing.T) {
	run := func(behind func(done int) bool) (most int32) {
		var running gauge
		var ran atomic.Int32
		require.NoError(t, forEachPaced(400, behind, func(int) error {
			running.hold(time.Millisecond)
			ran.Add(1)
			return nil
		}))
		require.EqualValues(t, 400, ran.Load())
		return running.most.Load()
	}
	require.EqualValues(t, 1, run(func(int) bool { return false }))
	require.Greater(t, run(func(done int) bool { return done > 100 && done < 300 }), int32(atOnce-1))
	ran := 0
	require.ErrorIs(t, forEachPaced(10, func(int) bool { return false }, func(i int) error {
		if ran++; i == 3 {
			return ErrCorrupt
		}
		return nil
	}), ErrCorrupt)
	require.Equal(t, 4, ran)
}
