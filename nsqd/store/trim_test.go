package store

import (
	"math/rand/v2"
	"sync"
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

// TestTrimBehindACut: a log is cut and grows again, durably, but the segments still hold the cut
// batches. Retention must not take the bounds of their files for those of the log.
func TestTrimBehindACut(t *testing.T) {
	s := reopen(t, testOptions(vfstest.NewMemory()))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 20, 3000)
	require.NoError(t, s.Checkpoint())
	m.borders = m.borders[:2]
	p.Index().Truncate(m.end().at.Offset)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, Epoch: 1, At: m.end().at, PrevCRC: m.end().crc})
	m.put(t, s, 25, 1999)
	require.NoError(t, p.TrimHead(m.end().at))
	starts := func() {
		start, borders := p.Start(), map[ident.Position]bool{}
		for _, b := range m.borders {
			borders[b.at] = true
		}
		require.True(t, borders[start], "no batch begins at the start %+v", start)
		b, err := p.ReadAt(start.Offset, 1)
		require.NoError(t, err)
		require.Equal(t, start, b[0].At)
	}
	starts()
	m.checkpoint(t, s)
	require.NoError(t, p.TrimHead(m.end().at))
	require.Positive(t, p.Start().Offset, "nothing went")
	starts()

	m.put(t, s, 25, 1999)
	m.checkpoint(t, s)
	require.NoError(t, s.Trash(p.ID()))
	require.NoError(t, p.TrimHead(m.end().at), "retention of a partition that is removed at that moment")
	require.NoError(t, s.Err())
}

// TestNewFileIsBegunAtOnce: the file before it is to be removed, and no further puts may come to
// fill a write.
func TestNewFileIsBegunAtOnce(t *testing.T) {
	_, _, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	m.say(t, s, "all that there is")
	begins := m.end().at
	_, ok := p.HeadEnd()
	require.False(t, ok)
	m.append(t, s, queue.NewFile(), queue.Marker())
	wait.Until(t, func() bool { _, ok := p.HeadEnd(); return ok }, "the segments have a head")
	head, _ := p.HeadEnd()
	require.Equal(t, begins.Offset, head)
	require.NoError(t, p.TrimHead(m.end().at))
	require.Equal(t, begins, p.Start())
	b, err := p.ReadAt(begins.Offset, 1<<20)
	require.NoError(t, err)
	require.Equal(t, m.end().at, b[len(b)-1].End)
}

// TestRestartMakesRoomAtOnce: the old files of a log that was restarted are removed, although no further puts
// come to fill a write. A follower below its disk reserve gets no batches until it has room.
func TestRestartMakesRoomAtOnce(t *testing.T) {
	_, _, s, p := alone(t, 1<<30)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 20, 3000)
	m.checkpoint(t, s)
	require.NotZero(t, p.DiskBytes())
	at := ident.Position{Offset: 1 << 20, Sequence: 1000}
	p.Index().Restart(at)
	submit(t, s, p, queue.Write{Kind: queue.WriteRestart, Epoch: 1, At: at, PrevCRC: 7})
	wait.Until(t, func() bool { return p.DiskBytes() == 0 }, "the old files are gone")
	m.borders = []border{{at: at, crc: 7}}
	m.put(t, s, 3, 100)
	m.checkpoint(t, s)
	require.Equal(t, at, p.Start())
}

// TestStartAtAnEmptySegment: retention leaves the newest segment, a cut empties it, and the power
// is cut before the next checkpoint. Then the log is empty and begins at its end, with the sequence
// of that place and no older one.
func TestStartAtAnEmptySegment(t *testing.T) {
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(mem))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 20, 3000)
	require.NoError(t, s.Checkpoint())
	bases := p.segments.bases()
	newest := bases[len(bases)-1]
	require.NoError(t, p.TrimHead(m.end().at))
	require.Equal(t, newest, p.Start().Offset)
	for m.end().at.Offset > newest {
		m.borders = m.borders[:len(m.borders)-1]
	}
	require.Positive(t, m.end().at.Sequence)
	p.Index().Truncate(newest)
	submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, Epoch: 1, At: m.end().at, PrevCRC: m.end().crc})
	for seed := range uint64(20) {
		again := reopen(t, testOptions(mem.CrashClone(rand.New(rand.NewPCG(seed, 1))))).Partitions()[0]
		require.Equal(t, m.end().at, again.Restored().End)
		require.Equal(t, m.end().at, again.Start())
		require.Equal(t, m.end().at, again.Index().End())
		require.Equal(t, m.end().crc, again.durable.startCRC)
	}
}

// TestStartWhileTrimming: a reader from the start finds the start, also while files are removed.
func TestStartWhileTrimming(t *testing.T) {
	var p *Partition
	removed := 0
	s := reopen(t, testOptions(vfstest.Wrap(vfstest.NewMemory(), func(op vfstest.Op) error {
		if p == nil || op.Call != vfstest.CallRemove && op.Call != vfstest.CallSyncDir {
			return nil
		}
		removed++
		b, err := p.ReadAt(p.Start().Offset, 1)
		require.NoError(t, err)
		require.Equal(t, p.Start(), b[0].At)
		return nil
	})))
	q, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: q, borders: []border{{}}}
	m.put(t, s, 20, 3000)
	m.checkpoint(t, s)
	p = q
	require.NoError(t, p.TrimHead(m.end().at))
	require.Positive(t, p.Start().Offset, "nothing went")
	require.Positive(t, removed)
}

// checkpoint makes a checkpoint of everything. An acknowledged submission may reach the writer a
// moment later.
func (m *model) checkpoint(t *testing.T, s *Store) {
	wait.Until(t, func() bool {
		require.NoError(t, s.Checkpoint())
		return m.p.segments.end() == m.end().at.Offset
	}, "the segments have the whole log")
}

func submit(t *testing.T, s *Store, p *Partition, w queue.Write) {
	t.Helper()
	a := make(answer, 1)
	s.Submit([]Submission{{p, []queue.Write{w}}}, a, 1)
	require.NoError(t, <-a)
}

// TestTrimThenPowerCut: retention removes files whose successors no checkpoint has synced yet. A
// power cut, in the removal or in the next start, may reorder the changes of the directory; the
// journal must still find the end of the log.
func TestTrimThenPowerCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex // of rng and cuts; the journal syncs its acknowledgement record by itself
	var cuts []*vfstest.Memory
	var armed atomic.Bool
	take := func(mem *vfstest.Memory, clones int) []*vfstest.Memory { // the cuts so far, and more of mem
		mu.Lock()
		defer mu.Unlock()
		taken := cuts
		cuts = nil
		for range clones {
			taken = append(taken, mem.CrashClone(rng))
		}
		return taken
	}
	cutting := func(mem *vfstest.Memory, clones int) vfs.FS {
		return vfstest.Wrap(mem, func(op vfstest.Op) error {
			mu.Lock()
			defer mu.Unlock()
			for i := 0; armed.Load() && i < clones && op.Call.Syncs(); i++ {
				cuts = append(cuts, mem.CrashClone(rng))
			}
			return nil
		})
	}
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(cutting(mem, 40)))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 5, 3000)
	require.NoError(t, s.Checkpoint())
	m.put(t, s, 24, 3000) // too little for a checkpoint
	wait.Until(t, func() bool { return p.segments.end() > 2*24<<10 }, "two segments are full")

	armed.Store(true)
	require.NoError(t, p.TrimHead(m.end().at))
	require.Positive(t, p.Start().Offset, "nothing went")
	inTrim := take(mem, 3)
	require.Greater(t, len(inTrim), 40)
	for i, cut := range inTrim {
		clones := 0
		if i >= len(inTrim)-3 {
			clones = 15
		}
		requireEnd(t, cutting(cut, clones), m.end())
	}
	armed.Store(false)
	inStart := take(nil, 0)
	require.Greater(t, len(inStart), 45)
	for _, cut := range inStart {
		requireEnd(t, cut, m.end())
	}
}

// requireEnd opens a disk after a power cut.
func requireEnd(t *testing.T, fs vfs.FS, end border) {
	t.Helper()
	s, err := Open(testOptions(fs))
	require.NoError(t, err)
	r := s.Partitions()[0].Restored()
	require.Equal(t, end, border{r.End, r.LastCRC, r.LastTimeNS})
	require.NoError(t, s.Close())
}

// put appends n batches of one message each.
func (m *model) put(t *testing.T, s *Store, n, size int) {
	t.Helper()
	drafts := make([]queue.Draft, n)
	for i := range drafts {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: make([]byte, size)})
		drafts[i] = d.Draft(ident.RequestID{})
	}
	m.append(t, s, drafts...)
}

// TestIndexOfACutThatWasLost: the index is cut already, the record of the cut is not durable yet,
// and the power is cut during a checkpoint's write of the index: sectors of both histories are on
// the disk.
func TestIndexOfACutThatWasLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	var mu sync.Mutex // the journal syncs its acknowledgement record by itself
	var cuts []*vfstest.Memory
	armed := false
	arm := func(is bool) {
		mu.Lock()
		defer mu.Unlock()
		armed = is
	}
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		mu.Lock()
		defer mu.Unlock()
		for i := 0; armed && i < 50 && op.Call == vfstest.CallSync; i++ {
			cuts = append(cuts, mem.CrashClone(rng))
		}
		return nil
	})))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 60, 100)
	require.NoError(t, s.Checkpoint())
	submit(t, s, p, queue.Write{Kind: queue.WriteEpoch, Epoch: 1})

	end := m.end()
	other := &model{p: p, borders: m.borders[:5], epoch: 1}
	p.Index().Truncate(other.end().at.Offset)
	for range 80 {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: make([]byte, 90)})
		other.batch(rng, d.Draft(ident.RequestID{}))
	}
	arm(true)
	require.NoError(t, s.Checkpoint())
	arm(false)
	require.NotEmpty(t, cuts)
	for _, cut := range cuts {
		s, err := Open(testOptions(cut))
		require.NoError(t, err)
		checkLog(t, s.Partitions()[0], expected{end: end})
		require.NoError(t, s.Close())
	}
}

// gate fails the sync of one directory once. Afterwards the kernel counts the changes as written
// (fsyncgate): later syncs of the directory succeed and do nothing.
type gate struct {
	vfs.FS
	armed  atomic.Bool
	dir    string
	mu     sync.Mutex
	failed bool
}

func (g *gate) SyncDir(dir string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if dir == g.dir && g.failed {
		return nil
	}
	if dir == g.dir && g.armed.Load() {
		g.failed = true
		return syscall.EIO
	}
	return g.FS.SyncDir(dir)
}

// TestTrimWhoseSyncFails: retention's sync of the folder fails. The next checkpoint must not count
// a repetition of that sync as a success.
func TestTrimWhoseSyncFails(t *testing.T) {
	mem := vfstest.NewMemory()
	g := &gate{FS: mem}
	o := testOptions(g)
	o.CheckpointBytes, o.JournalBytes = 1<<30, 1<<20
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 20, 3000)
	require.NoError(t, s.Checkpoint()) // files 0 and 1 and so on are durable
	m.checkpoint(t, s)
	id, bases := p.StoreID(), len(p.segments.bases())
	m.put(t, s, 40, 3000) // in new files, their entries not synced yet
	submit(t, s, p, queue.Write{Kind: queue.WriteCommitted, At: m.end().at})
	wait.Until(t, func() bool { return len(p.segments.bases()) > bases }, "the writer has begun a new segment")
	acked := m.end()
	g.mu.Lock() // the journal may be creating a file
	g.dir = p.dir
	g.mu.Unlock()
	g.armed.Store(true)
	require.ErrorIs(t, p.TrimHead(m.borders[12].at), syscall.EIO) // coordinator/maintenance/retention.go: "retention failed, trying again"
	stopped := s.Err()
	g.armed.Store(false)
	_ = p.TrimHead(m.borders[12].at) // 500 ms later
	if err := s.Checkpoint(); err == nil {
		m.put(t, s, 1, 10) // further acknowledged puts
		acked = m.end()
	}
	for i := range uint64(16) { // for several outcomes
		o.FS = mem.CrashClone(rand.New(rand.NewPCG(i, 4)))
		again := reopen(t, o)
		q := again.Partitions()[0]
		require.Equal(t, acked.at, q.Restored().End, "acknowledged bytes are gone (the store had stopped: %v)", stopped)
		require.Equal(t, id, q.StoreID())
		_ = again.Close()
	}
	require.ErrorIs(t, stopped, syscall.EIO)
}

// TestRestartBesideTrim: a log is restarted while retention looks for its boundary.
func TestRestartBesideTrim(t *testing.T) {
	var hook atomic.Pointer[func()]
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
		if op.Call == vfstest.CallRead {
			if f := hook.Swap(nil); f != nil {
				(*f)()
			}
		}
		return nil
	})))
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	m := &model{p: p, borders: []border{{}}}
	m.put(t, s, 30, 3000)
	m.checkpoint(t, s)
	at := ident.Position{Offset: 1 << 20, Sequence: 1000}
	restart := func() {
		p.Index().Restart(at)
		a := make(answer, 1)
		s.Submit([]Submission{{p, []queue.Write{{Kind: queue.WriteRestart, Epoch: 1, At: at, PrevCRC: 7}}}}, a, 1)
		if err := <-a; err != nil {
			t.Error(err)
		}
	}
	hook.Store(&restart)
	require.NoError(t, p.TrimHead(m.borders[20].at))
	require.Nil(t, hook.Load(), "not beside each other")
	m.borders = []border{{at: at, crc: 7}}
	m.put(t, s, 3, 100)
	m.checkpoint(t, s)
	require.Equal(t, at, p.Start(), "the log begins at the restart")
	got, err := p.ReadAt(p.Start().Offset, 1)
	require.NoError(t, err)
	require.Equal(t, at, got[0].At)
}
