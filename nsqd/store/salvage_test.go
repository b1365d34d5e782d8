package store

import (
	"math/rand/v2"
	"path"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// alone opens a store with one partition and one journal file.
func alone(t *testing.T, checkpointBytes int64) (*vfstest.Memory, Options, *Store, *Partition) {
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.JournalBytes, o.CheckpointBytes = 1<<20, checkpointBytes
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	beginJournal(t, s, p)
	return mem, o, s, p
}

// beginJournal writes a batch and waits for the checkpoint that the first file of a journal causes.
// A later one would include the data that the test damages.
func beginJournal(t *testing.T, s *Store, p *Partition) {
	t.Helper()
	submit(t, s, p, queue.Write{Kind: queue.WriteCommitted})
	wait.Until(t, func() bool {
		c, err := readCheckpoint(s.o.FS, s.checkpointName())
		return err == nil && c.mark.Files > 0
	}, "the first checkpoint of the journal")
}

// say publishes one message with that text.
func (m *model) say(t *testing.T, s *Store, text string) {
	d := queue.NewDraft(0)
	_ = d.AddMessage(queue.Message{Body: []byte(text)})
	m.append(t, s, d.Draft(ident.RequestID{}))
}

// append puts batches with one write.
func (m *model) append(t *testing.T, s *Store, drafts ...queue.Draft) {
	t.Helper()
	w := queue.Write{Kind: queue.WriteAppend}
	for _, d := range drafts {
		e := m.end()
		b := d.Seal(e.at, 1, e.crc, e.time)
		m.borders = append(m.borders, border{b.End, b.CRC, b.Time})
		m.p.Index().Append(b.Record())
		w.Batches = append(w.Batches, b)
	}
	submit(t, s, m.p, w)
}

// TestSegmentsFillTheJournal: one bit of the journal decays. The batches of the group are whole in
// the segments, and so are the later ones; the chain of checksums proves it. A start must not cut
// them off.
func TestSegmentsFillTheJournal(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 3, 300)
	m.checkpoint(t, s)
	e := m.end()
	m.say(t, s, "the bit that decays")
	for range 4 {
		m.put(t, s, 15, 3000)
	}
	wait.Until(t, func() bool { return p.segments.end() >= m.borders[30].at.Offset }, "the segments have the batch behind the decayed one")
	held := p.segments.end()
	disk := killed(mem)
	flipIn(t, disk, "data/journal", "the bit that decays")
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	t.Logf("the log ended at %d, the segments at %d, the decayed group at %d", m.end().at.Offset, held, e.at.Offset)
	require.GreaterOrEqual(t, q.Restored().End.Offset, held, "whole batches were cut from the segments")
	require.Equal(t, m.end().at, q.Restored().End)
}

// TestLostDelta: a delta of the channel state decays in the journal. The later deltas must not be
// applied without it, nor their version be reported: the leader would continue from there and never
// send the missing one.
func TestLostDelta(t *testing.T) {
	mem, o, s, p := alone(t, 80<<10)
	for n, delta := range []string{"all channels", "channel b is made", "channel a is at 7"} {
		submit(t, s, p, queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: uint64(n + 1), Full: n == 0, Delta: []byte(delta)}})
	}
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "channel b is made")
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.NotEqual(t, p.StoreID(), q.StoreID())
	for i, c := range q.States() {
		require.True(t, c.Full || i > 0 && c.N == q.States()[i-1].N+1, "version %d is to be applied to %d: %+v", c.N, q.States()[max(i, 1)-1].N, q.States())
	}
	require.EqualValues(t, 1, q.Restored().State.N, "the version that it really has")
}

// TestLostSnapshot: the same with the snapshot of the channel state.
func TestLostSnapshot(t *testing.T) {
	mem, o, s, p := alone(t, 80<<10)
	writeState := func(n uint64, delta string) {
		submit(t, s, p, queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: n, Full: n == 1, Delta: []byte(delta)}})
	}
	writeState(1, "all channels")
	for len(readOr(mem, p.dir+"/"+snapshotName)) == 0 {
		require.NoError(t, s.Checkpoint())
	}
	writeState(2, "channel a is at 7")
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, p.dir, "all channels")
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.NotEqual(t, p.StoreID(), q.StoreID())
	require.Zero(t, q.Restored().State.N, "it has nothing to apply version 2 to: %+v", q.States())
}

// TestDecayBeforeTheCheckpoint: a bit decays in a group below the checkpoint, in a journal file
// that also has newer groups. Nothing is missing.
func TestDecayBeforeTheCheckpoint(t *testing.T) {
	mem, o, s, p := alone(t, 80<<10)
	id := p.StoreID()
	m := &model{p: p, borders: []border{{}}}
	m.say(t, s, "in the segments, and synced there")
	m.checkpoint(t, s)
	m.say(t, s, "acknowledged")
	m.say(t, s, "acknowledged too")
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "in the segments, and synced there")
	o.FS = disk
	q := reopen(t, o).Partitions()[0]
	require.Equal(t, m.end().at, q.Restored().End, "acknowledged bytes that lie whole in the journal are gone")
	require.Equal(t, id, q.StoreID())
}

// TestDamagedSnapshot: the channel snapshot decays; the log is not concerned.
func TestDamagedSnapshot(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	submit(t, s, p, queue.Write{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 1, N: 1, Full: true, Delta: []byte("channels")}})
	for len(readOr(mem, p.dir+"/"+snapshotName)) == 0 { // a channel created before the first put, then a checkpoint
		require.NoError(t, s.Checkpoint())
	}
	m := &model{p: p, borders: []border{{}}}
	for range 3 {
		m.put(t, s, 15, 3000)
	}
	wait.Until(t, func() bool { return p.segments.end() > 0 }, "the segments have a batch")
	m.put(t, s, 2, 3000)
	for i := range uint64(20) {
		disk := mem.CrashClone(rand.New(rand.NewPCG(i, 2)))
		flipIn(t, disk, p.dir, "channels")
		o.FS = disk
		again := reopen(t, o)
		require.Equal(t, m.end().at, again.Partitions()[0].Restored().End, "seed %d: acknowledged bytes that lie whole in the journal are gone", i)
		_ = again.Close()
	}
}

func readOr(fs vfs.FS, name string) []byte {
	b, _ := vfs.ReadFile(fs, name)
	return b
}

// TestDecayAfterTheCheckpoint: the newest group decays, and no later one names it as synced, but
// a checkpoint made in between does.
func TestDecayAfterTheCheckpoint(t *testing.T) {
	mem := vfstest.NewMemory()
	var armed atomic.Bool
	var duringReplay func()
	o := testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		if op.Call == vfstest.CallSync && path.Ext(op.Name) == ".seg" && armed.CompareAndSwap(true, false) {
			duringReplay()
		}
		return nil
	}))
	o.JournalBytes, o.CheckpointBytes = 1<<20, 1<<30
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 3, 300)
	m.checkpoint(t, s)
	m.put(t, s, 3, 300)
	duringReplay = func() { m.say(t, s, "the bit that decays") }
	armed.Store(true)
	require.NoError(t, s.Checkpoint())
	require.False(t, armed.Load())
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "the bit that decays")
	o.FS = disk
	require.NotEqual(t, p.StoreID(), reopen(t, o).Partitions()[0].StoreID(), "acknowledged bytes are missing")
}

// TestCommittedBeyondTheLogsEnd: the log has lost its end, which was committed.
func TestCommittedBeyondTheLogsEnd(t *testing.T) {
	mem, o, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	m.say(t, s, "kept")
	kept := m.end().at
	m.say(t, s, "the bit that decays")
	submit(t, s, p, queue.Write{Kind: queue.WriteCommitted, At: m.end().at})
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "the bit that decays")
	o.FS = disk
	r := reopen(t, o).Partitions()[0].Restored()
	require.Equal(t, kept, r.End)
	require.Equal(t, kept, r.KnownCommitted)
}
