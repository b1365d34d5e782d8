package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestEveryCallFails fails each I/O call of a history once, with one of three errors in turn; a long
// run fails it with each of them. The store must stop (or continue, if the call was a read that it
// can do without). Afterwards the acknowledged data must exist, both after a kill of the process and
// after a power cut.
func TestEveryCallFails(t *testing.T) {
	for _, seed := range []uint64{5, 6} {
		everyCallFails(t, seed)
	}
}

func everyCallFails(t *testing.T, seed uint64) {
	const steps = 30
	var calls atomic.Int64
	count := vfstest.Wrap(vfstest.NewMemory(), func(vfstest.Op) error { calls.Add(1); return nil })
	w, err := newWorld(t, seed, count)
	require.NoError(t, err)
	require.NoError(t, w.run(steps))
	require.NoError(t, w.store.Close())
	total := calls.Load()
	t.Logf("%d calls", total)
	long := env.Number(t, "LOCKSTEP_SEQUENCES", 0) > 0
	for n := int64(1); n <= total; n++ {
		for i, fault := range []error{syscall.EIO, syscall.ENOSPC, vfstest.ErrShort} {
			if long || i == int(n)%3 {
				failOnce(t, seed, steps, n, fault)
			}
		}
	}
}

func failOnce(t *testing.T, seed uint64, steps int, n int64, fault error) {
	t.Helper()
	mem := vfstest.NewMemory()
	var calls atomic.Int64
	var failed atomic.Value
	w, err := newWorld(t, seed, vfstest.Wrap(mem, func(op vfstest.Op) error {
		if calls.Add(1) == n {
			failed.Store(op)
			return fault
		}
		return nil
	}))
	if err != nil {
		require.ErrorIs(t, err, fault)
		return
	}
	runErr := w.run(steps)
	acked := w.acked()
	power := mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(n))))
	closeErr := w.store.Close()
	name := fmt.Sprintf("call %d: %+v: %v", n, failed.Load(), fault)
	if op, ok := failed.Load().(vfstest.Op); ok && op.Call != vfstest.CallRead && op.Call != vfstest.CallOpen && op.Call != vfstest.CallSyncDisk {
		require.Error(t, firstError(runErr, closeErr, w.store.Err()), name)
	}
	t.Run(name, func(t *testing.T) {
		check(t, power, w.history, storeIDs(w), acked, w.submitted())
		check(t, mem, w.history, storeIDs(w), acked, w.submitted())
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestEveryCallOfARecoveryFails: a start on the disk of a killed process returns the error of the disk, whichever call fails.
// The next start has everything.
func TestEveryCallOfARecoveryFails(t *testing.T) {
	kinds := map[vfstest.Call]int{}
	for seed := range seeds(t, 6) {
		mem := vfstest.NewMemory()
		w, err := newWorld(t, 500+seed, mem)
		require.NoError(t, err)
		require.NoError(t, w.run(40))
		last, left := w.submitted(), killed(mem)
		require.NoError(t, w.store.Close())
		for n := int64(1); ; n++ {
			disk := killed(left)
			var calls atomic.Int64
			var failed atomic.Value
			o := eitherSync(testOptions(vfstest.Wrap(disk, func(op vfstest.Op) error {
				if calls.Add(1) == n {
					failed.Store(op)
					return syscall.EIO
				}
				return nil
			})), seed)
			if seed%3 == 2 {
				o.Doubt = errors.New("all store ids are renewed")
			}
			s, err := Open(o)
			if err == nil {
				err = s.Close()
			}
			op, ok := failed.Load().(vfstest.Op)
			if !ok {
				require.NoError(t, err)
				break
			}
			kinds[op.Call]++
			reads := op.Call == vfstest.CallRead || op.Call == vfstest.CallOpen
			repaired := reads && (path.Ext(op.Name) == segmentSuffix || path.Ext(op.Name) == ".idx") // as if it were damaged
			if !repaired && op.Call != vfstest.CallSyncDisk {
				require.ErrorIs(t, err, syscall.EIO, "seed %d, call %d: %+v", seed, n, op)
			}
			if err != nil && o.Doubt == nil {
				check(t, disk, w.history, storeIDs(w), last, last)
			}
		}
	}
	t.Log(kinds)
}

// filled runs a history, closes the store, and returns the disk and the ids.
func filled(t *testing.T, steps int) (*vfstest.Memory, *world) {
	t.Helper()
	mem := vfstest.NewMemory()
	w, err := newWorld(t, 77, mem)
	require.NoError(t, err)
	require.NoError(t, w.run(steps))
	return mem, w
}

func reopen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func requireIDs(t *testing.T, s *Store, ids []ident.StoreID, same bool) {
	t.Helper()
	for i, p := range s.Partitions() {
		if same {
			require.Equal(t, ids[i], p.StoreID())
		} else {
			require.NotEqual(t, ids[i], p.StoreID())
		}
	}
}

// TestFlippedBitInJournal: an acknowledged group cannot be read, and a later one proves it: every
// store id is renewed.
func TestFlippedBitInJournal(t *testing.T) {
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.JournalBytes = 1 << 20
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 1)), store: s, models: []*model{{p: p, borders: []border{{}}}}}
	w.cond.L = &w.mu
	w.note()
	for range 5 {
		w.note()
		s.Submit([]Submission{{p, []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{w.models[0].batch(w.rng, w.models[0].draft(w.rng))}}}}}, w, uint64(w.submitted()))
		require.NoError(t, w.settle())
	}
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	names, err := disk.List("data/journal")
	require.NoError(t, err)
	for _, name := range names {
		_ = disk.Flip("data/journal/"+name, 4096+600, 3) // in the body of the second group or later
	}
	o.FS = disk
	again := reopen(t, o)
	requireIDs(t, again, storeIDs(w), false)
	end := again.Partitions()[0].Restored().End
	require.Less(t, end.Offset, w.models[0].end().at.Offset)
	checkLog(t, again.Partitions()[0], expected{end: border{at: end, crc: again.Partitions()[0].Restored().LastCRC}})
	ids := []ident.StoreID{again.Partitions()[0].StoreID()}
	require.NoError(t, again.Close())
	requireIDs(t, reopen(t, o), ids, true)
}

// TestSalvage: records after an unreadable group are kept as far as they continue the log. Here the
// damage hits one of two partitions of a single replica: the other loses nothing.
func TestSalvage(t *testing.T) {
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.JournalBytes = 1 << 20
	s := reopen(t, o)
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 1)), store: s}
	w.cond.L = &w.mu
	for n := range 2 {
		p, err := s.Create("t", ident.Partition{Topic: 1, Number: uint16(n)})
		require.NoError(t, err)
		w.models = append(w.models, &model{p: p, borders: []border{{}}})
	}
	beginJournal(t, s, w.models[0].p)
	w.note()
	put := func(m *model, text string) {
		d := queue.NewDraft(0)
		_ = d.AddMessage(queue.Message{Body: []byte(text)})
		m.requests++
		w.note()
		b := m.batch(w.rng, d.Draft(ident.RequestID{Producer: 7, N: m.requests}))
		s.Submit([]Submission{{m.p, []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{b}}}}}, w, uint64(w.submitted()))
		require.NoError(t, w.settle())
	}
	hit, spared := w.models[0], w.models[1]
	put(hit, "kept")
	put(spared, "kept")
	before := hit.end()
	put(hit, "the bit that decays")
	put(spared, "salvaged")
	put(hit, "follows the lost group")
	put(spared, "salvaged too")
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	flipIn(t, disk, "data/journal", "the bit that decays")
	o.FS = disk
	again := reopen(t, o)
	requireIDs(t, again, storeIDs(w), false)
	list := again.Partitions()
	require.Equal(t, before.at, list[0].Restored().End)
	require.Equal(t, spared.end().at, list[1].Restored().End)
	checkLog(t, list[1], expected{end: spared.end()})
}

// flipIn flips a bit of a text in the file of a folder that holds it.
func flipIn(t *testing.T, disk *vfstest.Memory, dir, text string) {
	t.Helper()
	names, err := disk.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		content, err := vfs.ReadFile(disk, dir+"/"+name)
		require.NoError(t, err)
		if at := bytes.Index(content, []byte(text)); at >= 0 {
			require.NoError(t, disk.Flip(dir+"/"+name, int64(at), 1))
			return
		}
	}
	require.FailNow(t, "no file holds it")
}

// TestFlippedBitInSegment: the range is reported and not served, nothing is cut, no id changes, and
// a peer's bytes repair it.
func TestFlippedBitInSegment(t *testing.T) {
	mem, w := filled(t, 40)
	require.NoError(t, w.store.Close())
	m := w.models[1]
	var victim ident.Offset
	for _, b := range m.borders[:len(m.borders)-1] {
		if b.at.Offset >= m.p.Start().Offset {
			victim = b.at.Offset
			break
		}
	}
	base, ok := m.p.segments.base(victim)
	require.True(t, ok)
	s := reopen(t, testOptions(mem))
	good, err := s.Partitions()[1].ReadAt(victim, 1)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, mem.Flip(m.p.segments.name(base), int64(victim-base)+queue.HeaderSize+3, 1))
	s = reopen(t, testOptions(mem))
	requireIDs(t, s, storeIDs(w), true)
	p := s.Partitions()[1]
	require.Equal(t, m.end().at, p.Restored().End)
	_, err = p.ReadAt(victim, 1000)
	var damage *queue.Damage
	require.ErrorAs(t, err, &damage)
	require.ErrorIs(t, err, queue.ErrCorrupt)
	require.Equal(t, good[0].At.Offset, damage.From)
	require.Equal(t, good[0].End.Offset, damage.To)
	next, err := p.ReadAt(damage.To, 1000)
	require.NoError(t, err)
	require.NotEmpty(t, next)
	require.Len(t, p.Damaged(), 1)
	repairedTo, err := p.Repair(good)
	require.NoError(t, err)
	require.Equal(t, good[0].End.Offset, repairedTo)
	require.Empty(t, p.Damaged())
	_, err = p.ReadAt(victim, 1000)
	require.NoError(t, err)
}

// TestLostCheckpoint: without it the journal and the ends are doubtful. Nothing is deleted, every
// id is renewed.
func TestLostCheckpoint(t *testing.T) {
	mem, w := filled(t, 30)
	require.NoError(t, w.store.Close())
	require.NoError(t, mem.Remove("data/checkpoint"))
	s := reopen(t, testOptions(mem))
	requireIDs(t, s, storeIDs(w), false)
	for i, p := range s.Partitions() {
		require.Equal(t, w.models[i].end().at, p.Restored().End)
	}
}

// TestKilledWithoutCheckpoint: the process is killed, and the checkpoint decays. Batches that are
// missing in the segments are in the journal, which begins before their end, after older groups of
// reused files.
func TestKilledWithoutCheckpoint(t *testing.T) {
	for seed := range seeds(t, 16) {
		mem := vfstest.NewMemory()
		w, err := newWorld(t, 300+seed, mem)
		require.NoError(t, err)
		require.NoError(t, w.run(80))
		disk := mem.CrashClone(rand.New(rand.NewPCG(seed, 1)))
		ids := storeIDs(w)
		require.NoError(t, w.store.Close())
		require.NoError(t, disk.Remove("data/checkpoint"))
		s := reopen(t, testOptions(disk))
		requireIDs(t, s, ids, false)
		for i, p := range s.Partitions() {
			require.True(t, endsAt(p, w.models[i].end()), "seed %d, partition %d: %+v, not %+v", seed, i, p.Restored().End, w.models[i].end())
			w.models[i].judge(t, p, true, fmt.Sprint("seed ", seed))
		}
	}
}

// TestKilledWithoutCheckpointAfterACut: the journal begins before a cut that the segments have
// applied already. The batch before its first batch is not in the segments any more: the marker of
// the new epoch has the same size as the old one.
func TestKilledWithoutCheckpointAfterACut(t *testing.T) {
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(mem))
	first, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	second, err := s.Create("u", ident.Partition{Topic: 2})
	require.NoError(t, err)
	cut, other := &model{p: first, borders: []border{{}}}, &model{p: second, borders: []border{{}}}
	marker := func(epoch ident.Epoch) {
		at, crc := cut.end().at, cut.end().crc
		cut.epoch = epoch
		b := cut.batch(rand.New(rand.NewPCG(1, 1)), queue.Marker())
		submit(t, s, first, queue.Write{Kind: queue.WriteReset, Epoch: epoch, At: at, PrevCRC: crc, Batches: []queue.Batch{b}})
	}
	cut.put(t, s, 3, 500)
	marker(1)
	for range 100 {
		other.put(t, s, 1, 3000) // no earlier group remains in the journal's files
	}
	require.NoError(t, s.Checkpoint())
	cut.put(t, s, 1, 100)
	cut.borders = cut.borders[:len(cut.borders)-2]
	first.Index().Truncate(cut.end().at.Offset)
	marker(2)
	for range 23 {
		other.put(t, s, 1, 3000) // enough for the writer, too little for a checkpoint
	}
	wait.Until(t, func() bool { return scanChain(first).CRC == cut.end().crc }, "the segments have the cut")
	cut.put(t, s, 1, 100) // in the journal alone
	disk := killed(mem)
	require.NoError(t, s.Close())
	require.NoError(t, disk.Remove("data/checkpoint"))
	s = reopen(t, testOptions(disk))
	for i, m := range []*model{cut, other} {
		require.Equal(t, m.end().at, s.Partitions()[i].Restored().End)
	}
}

// killed returns the disk after a kill of the process: all writes survive.
func killed(mem *vfstest.Memory) *vfstest.Memory {
	const everything = 1 // see CrashClone
	for k := uint64(0); ; k++ {
		if rand.New(rand.NewPCG(1, k)).IntN(4) == everything {
			return mem.CrashClone(rand.New(rand.NewPCG(1, k)))
		}
	}
}

// TestLostIndex: the index is derived, so it is rebuilt, completely or in part.
func TestLostIndex(t *testing.T) {
	for _, damage := range []string{"remove", "flip", "truncate"} {
		t.Run(damage, func(t *testing.T) {
			mem, w := filled(t, 40)
			require.NoError(t, w.store.Close())
			names, err := mem.List(w.models[0].p.dir)
			require.NoError(t, err)
			for _, name := range names {
				if len(name) < 4 || name[len(name)-4:] != ".idx" {
					continue
				}
				name = w.models[0].p.dir + "/" + name
				switch damage {
				case "remove":
					require.NoError(t, mem.Remove(name))
				case "flip":
					require.NoError(t, mem.Flip(name, 20, 1))
				case "truncate":
					f, err := mem.Open(name)
					require.NoError(t, err)
					require.NoError(t, f.Truncate(100))
				}
			}
			last := w.submitted()
			check(t, mem, w.history, storeIDs(w), last, last)
		})
	}
}

// TestIndexOfALostCut: the index may show the result of a cut of the log that was itself lost:
// sectors of a later state between those of an earlier one, with a record beyond the end of the
// log. Recovery makes it agree with the log.
func TestIndexOfALostCut(t *testing.T) {
	tried := 0
	for seed := range seeds(t, 20) {
		mem := vfstest.NewMemory()
		w, err := newWorld(t, 500+seed, mem)
		require.NoError(t, err)
		require.NoError(t, w.run(40))
		require.NoError(t, w.store.Close())
		last := w.submitted()
		for _, m := range w.models {
			f, records := indexFile(t, mem, m.p.dir)
			keep := len(records) - 1 - int(seed%4)
			if keep < 0 {
				continue
			}
			tried++
			end, marker := records[len(records)-1], records[keep]
			marker.Epoch, marker.Count, marker.Size, marker.CRC = end.Epoch+1, 0, 80, ^marker.CRC
			beyond := commitlog.Record{Epoch: marker.Epoch, First: end.End().Sequence, Count: 1,
				Offset: end.End().Offset, Size: 500, CRC: 7, PrevCRC: end.CRC, TimeMS: end.TimeMS}
			writeIndex(t, f, append(records[:keep], marker, beyond))
		}
		check(t, mem, w.history, storeIDs(w), last, last)
	}
	require.Positive(t, tried)
}

// TestIndexOfSectors: the index of the uncommitted range may hold any whole records, in any order
// and in several files. Recovery makes it agree with the log.
func TestIndexOfSectors(t *testing.T) {
	for seed := range seeds(t, 60) {
		rng := rand.New(rand.NewPCG(seed, 12))
		mem := vfstest.NewMemory()
		w, err := newWorld(t, 700+seed, mem)
		require.NoError(t, err)
		require.NoError(t, w.run(20))
		require.NoError(t, w.store.Close())
		for _, m := range w.models {
			_, records := indexFile(t, mem, m.p.dir)
			if len(records) == 0 {
				continue
			}
			below := sort.Search(len(records), func(i int) bool { return records[i].Offset >= m.committed.Offset })
			odd := slices.Clone(records[:below])
			for _, r := range records[below:] {
				switch k := rng.IntN(8); {
				case k > 3:
					odd = append(odd, r)
				case k == 0: // lost
				case k == 1:
					odd = append(odd, r, records[below+rng.IntN(len(records)-below)])
				case k == 2:
					r.CRC, r.Size, r.Count, r.Epoch = ^r.CRC, 80, 0, records[len(records)-1].Epoch
					odd = append(odd, r)
				case k == 3:
					r.Offset += ident.Offset(rng.IntN(10_000))
					odd = append(odd, r)
				}
			}
			split := len(odd) // in a second file, named after its first offset
			for i, r := range odd {
				if r.Offset > m.committed.Offset && rng.IntN(8) == 0 {
					split = i
					break
				}
			}
			for _, part := range [][]commitlog.Record{odd[:split], odd[split:]} {
				if len(part) > 0 {
					f, err := mem.Create(path.Join(m.p.dir, fmt.Sprintf("%020d.idx", int64(part[0].Offset))))
					require.NoError(t, err)
					writeIndex(t, f, part)
				}
			}
		}
		last := w.submitted()
		check(t, mem, w.history, storeIDs(w), last, last)
	}
}

// TestIndexThatCameBack: the log was restarted below its old end, and the power cut undid the
// removal of the old index file.
func TestIndexThatCameBack(t *testing.T) {
	for _, kept := range []int{0, 1, 3} {
		mem := vfstest.NewMemory()
		s := reopen(t, testOptions(mem))
		p, err := s.Create("t", ident.Partition{Topic: 1})
		require.NoError(t, err)
		m := &model{p: p, borders: []border{{}}}
		m.put(t, s, 10, 3000)
		m.checkpoint(t, s)
		_, old := indexFile(t, mem, p.dir)
		start := m.borders[5]
		m.borders, m.start, m.epoch = []border{start}, start.at, 2
		p.Index().Restart(start.at)
		submit(t, s, p, queue.Write{Kind: queue.WriteRestart, Epoch: 2, At: start.at, PrevCRC: start.crc})
		rng := rand.New(rand.NewPCG(3, 3))
		for range 3 {
			submit(t, s, p, queue.Write{Kind: queue.WriteAppend, Epoch: 2, Batches: []queue.Batch{m.batch(rng, m.draft(rng))}})
		}
		m.checkpoint(t, s)
		f, records := indexFile(t, mem, p.dir)
		require.Len(t, records, 3)
		m.borders = m.borders[:1+kept]
		p.Index().Truncate(m.end().at.Offset)
		submit(t, s, p, queue.Write{Kind: queue.WriteTruncate, Epoch: 2, At: m.end().at, PrevCRC: m.end().crc})
		submit(t, s, p, queue.Write{Kind: queue.WriteCommitted, At: m.end().at})
		require.NoError(t, s.Close())
		writeIndex(t, f, records)
		f, err = mem.Create(path.Join(p.dir, fmt.Sprintf("%020d.idx", 0)))
		require.NoError(t, err)
		writeIndex(t, f, old)
		p = reopen(t, testOptions(mem)).Partitions()[0]
		require.Equal(t, m.end().at, p.Index().End())
		checkLog(t, p, expected{end: m.end(), start: start.at})
		for _, e := range p.Index().Epochs() {
			require.Equal(t, ident.Epoch(2), e.Epoch, "%d kept", kept)
		}
	}
}

func writeIndex(t *testing.T, f vfs.File, records []commitlog.Record) {
	require.NoError(t, f.Truncate(0))
	var b []byte
	for _, r := range records {
		b = r.AppendTo(b)
	}
	_, err := f.WriteAt(b, 0)
	require.NoError(t, err)
}

// indexFile returns the newest file of a partition's index, if there is one, and its records.
func indexFile(t *testing.T, mem *vfstest.Memory, dir string) (vfs.File, []commitlog.Record) {
	names, err := mem.List(dir)
	require.NoError(t, err)
	var newest string
	for _, name := range names {
		if path.Ext(name) == ".idx" {
			newest = path.Join(dir, name)
		}
	}
	if newest == "" {
		return nil, nil
	}
	b, err := vfs.ReadFile(mem, newest)
	require.NoError(t, err)
	var records []commitlog.Record
	for ; len(b) > 0; b = b[commitlog.RecordSize:] {
		r, err := commitlog.Decode(b)
		require.NoError(t, err)
		records = append(records, r)
	}
	f, err := mem.Open(newest)
	require.NoError(t, err)
	return f, records
}

// TestLostIdentity: a folder without a readable store.json keeps its log under a new id.
func TestLostIdentity(t *testing.T) {
	mem, w := filled(t, 30)
	require.NoError(t, w.store.Close())
	require.NoError(t, mem.Flip(w.models[2].p.dir+"/store.json", 3, 1))
	s := reopen(t, testOptions(mem))
	list := s.Partitions()
	require.Equal(t, w.models[0].p.StoreID(), list[0].StoreID())
	require.NotEqual(t, w.models[2].p.StoreID(), list[2].StoreID())
	require.Equal(t, w.models[2].end().at, list[2].Restored().End)
}

// TestDecayedIdentity: a digit of the slot has decayed to another digit, so store.json parses. Then
// no record of the journal or the checkpoint belongs to the partition.
func TestDecayedIdentity(t *testing.T) {
	mem, w := filled(t, 30)
	require.NoError(t, w.store.Close())
	m := w.models[2]
	name := m.p.dir + "/" + identityName
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	at := bytes.Index(content, []byte(`"slot":"`)) + len(`"slot":"`)
	at += bytes.IndexAny(content[at:], "0123456789")
	require.NoError(t, mem.Flip(name, int64(at), 0))
	p := reopen(t, testOptions(mem)).Partitions()[2]
	require.NotEqual(t, m.p.StoreID(), p.StoreID())
	require.Equal(t, m.end().at, p.Restored().End)
}

// TestUnsyncedOperation: after a kill the page cache and so the ids survive; after a restart of the
// machine they do not.
func TestUnsyncedOperation(t *testing.T) {
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.NoSync = true
	s := reopen(t, o)
	p, err := s.Create("t", ident.Partition{Topic: 1})
	require.NoError(t, err)
	id := p.StoreID()
	require.NoError(t, s.Close())
	s = reopen(t, o)
	require.Equal(t, id, s.Partitions()[0].StoreID())
	o.FS = killed(mem)
	require.Equal(t, id, reopen(t, o).Partitions()[0].StoreID())
	o.FS, o.BootID = killed(mem), "another"
	require.NotEqual(t, id, reopen(t, o).Partitions()[0].StoreID())
}

// TestDeletedTopicsLeaveNoFolder: when the last partition of a topic leaves the trash, its folder
// is removed, and not before.
func TestDeletedTopicsLeaveNoFolder(t *testing.T) {
	mem := vfstest.NewMemory()
	s := reopen(t, testOptions(mem))
	ids := []ident.Partition{{Topic: 7, Number: 0}, {Topic: 7, Number: 1}}
	for _, id := range ids {
		_, err := s.Create("deleted.often", id)
		require.NoError(t, err)
	}
	for i, id := range ids {
		require.NoError(t, s.Trash(id))
		require.NoError(t, s.EmptyTrash(0))
		topics, err := mem.List("data/topics")
		require.NoError(t, err)
		require.Len(t, topics, len(ids)-1-i)
	}
	_, err := s.Create("deleted.often", ids[0]) // moved away before, and now back
	require.NoError(t, err)
}

// TestTrash: a removed partition and its journal records do not come back, and a new one in its
// place is another store.
func TestTrash(t *testing.T) {
	mem, w := filled(t, 20)
	id, old := w.models[0].p.ID(), w.models[0].p.StoreID()
	require.NoError(t, w.store.Trash(id))
	require.ErrorIs(t, w.store.Trash(id), errUnknown)
	p, err := w.store.Create("t0", id)
	require.NoError(t, err)
	require.NotEqual(t, old, p.StoreID())
	_, err = w.store.Create("t0", id)
	require.ErrorIs(t, err, errExists)
	disk := mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, w.store.Close())
	s := reopen(t, testOptions(disk))
	again, ok := s.Partition(id)
	require.True(t, ok)
	require.Equal(t, p.StoreID(), again.StoreID())
	require.Zero(t, again.Restored().End)
	names, err := disk.List("data/trash")
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NoError(t, s.EmptyTrash(0))
	names, err = disk.List("data/trash")
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestTrashBeforeItIsWritten: batches that are durable in the journal and not yet in the segments
// are dropped with their partition.
func TestTrashBeforeItIsWritten(t *testing.T) {
	busy, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o := testOptions(vfstest.Wrap(vfstest.NewMemory(), func(op vfstest.Op) error {
		if op.Call == vfstest.CallWrite && path.Ext(op.Name) == ".seg" {
			once.Do(func() {
				close(busy)
				<-goOn
			})
		}
		return nil
	}))
	s := reopen(t, o)
	var models []*model
	for n := range ident.TopicID(2) {
		p, err := s.Create("t", ident.Partition{Topic: n + 1})
		require.NoError(t, err)
		models = append(models, &model{p: p, borders: []border{{}}})
	}
	models[0].put(t, s, 1, gatherBytes)
	<-busy
	models[1].put(t, s, 1, gatherBytes)
	require.NoError(t, s.Trash(models[1].p.ID()))
	close(goOn)
	require.NoError(t, s.Checkpoint())
	require.NoError(t, s.Err())
}

// TestLostJournalFiles: the journal of a killed store, or a file of it, is removed or reads as
// zeros. The data acknowledged last is lost.
func TestLostJournalFiles(t *testing.T) {
	for what, harm := range map[string]func(fs vfs.FS, name string) error{
		"nothing": func(vfs.FS, string) error { return nil },
		"removed": func(fs vfs.FS, name string) error { return fs.Remove(name) },
		"emptied": func(fs vfs.FS, name string) error { return rewritten(fs, name, 0) },
		"zeroed":  func(fs vfs.FS, name string) error { return rewritten(fs, name, testOptions(fs).JournalBytes) },
	} {
		for _, files := range []int{1, 3} {
			mem := vfstest.NewMemory()
			s := reopen(t, testOptions(mem))
			p, err := s.Create("t", ident.Partition{Topic: 1})
			require.NoError(t, err)
			m := &model{p: p, borders: []border{{}}}
			for n := 0; n < files; n = s.journal.Mark().Files {
				m.put(t, s, 1, 1000)
			}
			if files > 1 {
				require.NoError(t, s.Checkpoint())
			}
			wait.Until(t, func() bool {
				c, err := readCheckpoint(mem, s.checkpointName())
				return err == nil && c.mark.Files >= files
			}, "a checkpoint names every journal file")
			m.put(t, s, 3, 100)

			o := testOptions(mem.CrashClone(rand.New(rand.NewPCG(1, 1))))
			require.NoError(t, harm(o.FS, newestJournalFile(t, o.FS)))
			again := reopen(t, o)
			q := again.Partitions()[0]
			if what == "nothing" {
				require.Equal(t, p.StoreID(), q.StoreID())
				require.Equal(t, m.end().at, q.Restored().End)
			} else {
				require.NotEqual(t, p.StoreID(), q.StoreID(), "%s of %d: acknowledged up to %d, here %d, and still under the old store id", what, files, m.end().at.Offset, q.Restored().End.Offset)
			}
			require.NoError(t, again.Close())
			require.NoError(t, s.Close())
		}
	}
}

// newestJournalFile is the journal file with the newest group.
func newestJournalFile(t *testing.T, fs vfs.FS) (newest string) {
	names, err := fs.List("data/journal")
	require.NoError(t, err)
	last := uint64(0)
	for _, name := range names {
		content, err := vfs.ReadFile(fs, path.Join("data/journal", name))
		require.NoError(t, err)
		for at := 0; at < len(content); at += journal.Align {
			if h, _, _, err := journal.DecodeGroup(content[at:]); err == nil && h.Group > last {
				newest, last = path.Join("data/journal", name), h.Group
			}
		}
	}
	return newest
}

// rewritten replaces a file by n zeros.
func rewritten(fs vfs.FS, name string, size int64) error {
	f, err := fs.Create(name)
	if err == nil {
		_, err = f.WriteAt(make([]byte, size), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// TestCreateOnAFullDisk finds no space at each call of Create in turn. Either the store stops, or
// Create works once there is room, and what the partition then acknowledges survives a power cut.
// The journal, which prepares a file alongside Create, always has room.
func TestCreateOnAFullDisk(t *testing.T) {
	goesOn, stops := 0, 0
	for n := int64(1); ; n++ {
		mem := vfstest.NewMemory()
		var calls atomic.Int64
		var full atomic.Bool
		s := reopen(t, testOptions(vfstest.Wrap(mem, func(op vfstest.Op) error {
			if full.Load() && !strings.HasPrefix(op.Name, "data/journal") && calls.Add(1) >= n {
				return syscall.ENOSPC
			}
			return nil
		})))
		full.Store(true)
		_, err := s.Create("t", ident.Partition{Topic: 1})
		full.Store(false)
		if err == nil {
			require.NoError(t, s.Err())
			break
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		select {
		case <-s.Failed():
			require.Error(t, s.Err())
			require.NotErrorIs(t, err, ErrDiskFull)
			stops++
			continue
		default:
			require.ErrorIs(t, err, ErrDiskFull)
			goesOn++
		}
		p, err := s.Create("t", ident.Partition{Topic: 1})
		require.NoError(t, err)
		m := &model{p: p, borders: []border{{}}}
		m.put(t, s, 1, 100)
		again := reopen(t, testOptions(mem.CrashClone(rand.New(rand.NewPCG(1, uint64(n))))))
		require.Len(t, again.Partitions(), 1)
		require.Equal(t, p.StoreID(), again.Partitions()[0].StoreID())
		require.Equal(t, m.end().at, again.Partitions()[0].Restored().End)
	}
	require.GreaterOrEqual(t, goesOn, 4, "folders, file, write, sync")
	require.GreaterOrEqual(t, stops, 3, "syncs of the folders")
}
