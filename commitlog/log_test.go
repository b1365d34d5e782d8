package commitlog

import (
	"encoding/hex"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

var sample = Record{Epoch: 3, First: 100, Count: 2, Offset: 4096, Size: 300, CRC: 0xdeadbeef, PrevCRC: 0x01020304, TimeMS: 1700000000123}

func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/record.hex")
	require.NoError(t, err)
	b := sample.AppendTo(nil)
	require.Len(t, b, RecordSize)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(b))
	r, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, sample, r)
}

func FuzzDecode(f *testing.F) {
	f.Add(sample.AppendTo(nil))
	f.Add(make([]byte, RecordSize))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			require.ErrorIs(t, err, errCorrupt)
			return
		}
		require.Equal(t, b[:RecordSize], r.AppendTo(nil))
	})
}

// TestModel compares a log, flushed and opened again at random moments, with a
// slice.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfstest.NewMemory()
		require.NoError(t, fs.MkdirAll("p"))
		files := vfs.NewCache(fs, 2)
		l, err := Open(fs, files, "p")
		require.NoError(t, err)
		m := &model{}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					l.Append(m.next(t))
				}
			},
			"truncate": func(t *rapid.T) {
				n := rapid.IntRange(0, len(m.records)).Draw(t, "keep")
				if n < len(m.records) {
					end := m.records[n].Offset
					m.end, m.crc = ident.Position{Offset: end, Sequence: m.records[n].First}, m.records[n].PrevCRC
					m.records = m.records[:n]
					l.Truncate(end)
				}
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "seldom") == 0 {
					m.end.Offset += 1000
					m.records, m.start = nil, m.end
					l.Restart(m.end)
				}
			},
			"trim": func(t *rapid.T) {
				if len(m.records) > 0 {
					n := rapid.IntRange(0, len(m.records)-1).Draw(t, "n")
					m.start = ident.Position{Offset: m.records[n].Offset, Sequence: m.records[n].First}
					m.records = m.records[n:]
					require.NoError(t, l.TrimHead(m.start))
				}
			},
			"flush": func(t *rapid.T) { require.NoError(t, l.Flush(m.end.Offset)) },
			"reopen": func(t *rapid.T) {
				require.NoError(t, l.Flush(m.end.Offset))
				require.NoError(t, l.Sync())
				require.NoError(t, l.Close())
				if l, err = Open(fs, files, "p"); len(m.records) == 0 {
					l.Restart(m.end)
				}
				require.NoError(t, err)
				require.NoError(t, l.TrimHead(m.start))
			},
			"": func(t *rapid.T) { m.compare(t, l) },
		})
	})
}

type model struct {
	records    []Record
	start, end ident.Position
	crc        uint32
	epoch      ident.Epoch
	time       int64
}

func (m *model) next(t *rapid.T) Record {
	m.epoch += ident.Epoch(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "epoch"))
	m.time += rapid.Int64Range(0, 3).Draw(t, "time")
	r := Record{
		Epoch: m.epoch, First: m.end.Sequence, Count: rapid.Uint32Range(0, 3).Draw(t, "count"),
		Offset: m.end.Offset, Size: rapid.Uint32Range(80, 500).Draw(t, "size"),
		CRC: rapid.Uint32().Draw(t, "crc"), PrevCRC: m.crc, TimeMS: m.time,
	}
	m.crc = r.CRC
	m.records = append(m.records, r)
	m.end = r.End()
	return r
}

func (m *model) compare(t *rapid.T, l *Log) {
	l.TruncateAtGap(m.start.Offset + ident.Offset(rapid.IntRange(0, 1000).Draw(t, "floor"))) // the records have no gap
	require.Equal(t, m.start, l.Start())
	require.Equal(t, m.end, l.End())
	require.Equal(t, m.epochs(), append([]EpochEnd{}, l.Epochs()...))
	last, ok := l.Last()
	newest, some := l.Newest(1)
	require.Equal(t, last, newest)
	require.Equal(t, ok, some)
	if len(m.records) == 0 {
		require.True(t, !ok || last.End().Offset <= m.start.Offset)
		return
	}
	require.Equal(t, m.records[len(m.records)-1], last)
	r := rapid.SampledFrom(m.records).Draw(t, "record")
	got, ok := l.AtOffset(r.Offset + ident.Offset(rapid.Uint32Range(0, r.Size-1).Draw(t, "o")))
	require.True(t, ok)
	require.Equal(t, r, got)
	if got, ok = l.AtSequence(r.First); r.Count > 0 {
		require.True(t, ok)
		require.Equal(t, r, got)
	}
	got, ok = l.AtTime(r.TimeMS)
	require.True(t, ok)
	for _, first := range m.records {
		if first.TimeMS >= r.TimeMS {
			require.Equal(t, first, got)
			break
		}
	}
	n := rapid.IntRange(1, len(m.records)).Draw(t, "newest")
	got, ok = l.Newest(n)
	require.True(t, ok)
	require.Equal(t, m.records[len(m.records)-n], got)
	got, ok = l.Newest(1 << 40)
	require.True(t, ok)
	require.LessOrEqual(t, got.Offset, m.records[0].Offset, "the oldest that there is")
	_, ok = l.AtOffset(m.end.Offset)
	require.False(t, ok)
	_, ok = l.AtOffset(m.start.Offset - 1)
	require.False(t, ok)
	_, ok = l.AtTime(m.time + 1)
	require.False(t, ok)
}

func (m *model) epochs() []EpochEnd {
	epochs := []EpochEnd{}
	for _, r := range m.records {
		epochs = appendEpoch(epochs, r)
	}
	return epochs
}

// TestTruncateAtGap breaks the chain before one record, in memory, in the newest file and in an
// older one. The log is cut there, unless the record lies below the floor.
func TestTruncateAtGap(t *testing.T) {
	const records, size = recordsPerFile + 3*cachedRecords, 100
	for _, broken := range []int64{1, 1000, recordsPerFile, recordsPerFile + 1, records - cachedRecords, records - 1} {
		for _, flushed := range []bool{false, true} {
			fs := vfstest.NewMemory()
			require.NoError(t, fs.MkdirAll("p"))
			files := vfs.NewCache(fs, 2)
			l, err := Open(fs, files, "p")
			require.NoError(t, err)
			for n := range int64(records) {
				r := Record{First: ident.Sequence(n), Count: 1, Offset: ident.Offset(n * size), Size: size, CRC: uint32(n + 1), PrevCRC: uint32(n)}
				if n == broken {
					r.PrevCRC++
				}
				l.Append(r)
			}
			end := l.End()
			if flushed {
				require.NoError(t, l.Flush(end.Offset))
				require.NoError(t, l.Sync())
				require.NoError(t, l.Close())
				l, err = Open(fs, files, "p")
				require.NoError(t, err)
			}
			border := ident.Position{Offset: ident.Offset(broken * size), Sequence: ident.Sequence(broken)}
			l.TruncateAtGap(border.Offset + 1)
			require.Equal(t, end, l.End(), broken)
			l.TruncateAtGap(border.Offset)
			require.Equal(t, border, l.End(), broken)
			last, ok := l.Last()
			require.True(t, ok)
			require.Equal(t, border, last.End())
			require.NoError(t, l.Close())
		}
	}
}

// TestWalk: a walk visits every record once and in order, over several reads and files and into the memory, from any record on.
func TestWalk(t *testing.T) {
	const records, size = recordsPerFile + 3*cachedRecords, 100
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	l, err := Open(fs, vfs.NewCache(fs, 2), "p")
	require.NoError(t, err)
	for n := range int64(records) {
		l.Append(Record{First: ident.Sequence(n), Count: 1, Offset: ident.Offset(n * size), Size: size})
	}
	require.NoError(t, l.Flush(l.End().Offset))
	for _, from := range []int64{0, 1, walkRecords, recordsPerFile - 1, recordsPerFile, records - 1, records} {
		next, inOrder := from, true
		require.True(t, l.Walk(ident.Offset(from*size), func(r Record) {
			inOrder = inOrder && r.First == ident.Sequence(next)
			next++
		}))
		require.True(t, inOrder, "from record %d", from)
		require.Equal(t, int64(records), next, "from record %d", from)
	}
	require.NoError(t, l.Close())
}

// TestDamagedRecord: a lookup that needs a damaged record finds nothing. A cut there leaves a gap
// and no wrong records.
func TestDamagedRecord(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	l, err := Open(fs, vfs.NewCache(fs, 2), "p")
	require.NoError(t, err)
	for n := range 4 * cachedRecords {
		l.Append(Record{Epoch: 1, First: ident.Sequence(n), Count: 1, Offset: ident.Offset(100 * n), Size: 100, TimeMS: int64(n)})
	}
	require.NoError(t, l.Flush(l.End().Offset))
	require.NoError(t, fs.Flip(fileName("p", 0), 10*RecordSize, 1))
	_, ok := l.AtOffset(1050)
	require.False(t, ok)
	_, ok = l.AtOffset(100 * 2 * cachedRecords)
	require.True(t, ok)
	l.Truncate(1000)
	require.Equal(t, ident.Offset(1000), l.End().Offset)
	l.Append(Record{Epoch: 2, First: 10, Count: 1, Offset: 1000, Size: 100})
	r, ok := l.AtOffset(1099)
	require.True(t, ok)
	require.Equal(t, ident.Epoch(2), r.Epoch)
}

// TestSyncCoversAllFiles: after Sync, all files of one Flush survive a power cut.
func TestSyncCoversAllFiles(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("p"))
	l, err := Open(fs, vfs.NewCache(fs, 2), "p")
	require.NoError(t, err)
	const records = recordsPerFile + 100
	for n := range records {
		l.Append(Record{First: ident.Sequence(n), Count: 1, Offset: ident.Offset(100 * n), Size: 100, CRC: uint32(n + 1), PrevCRC: uint32(n)})
	}
	require.Equal(t, records, l.Unwritten())
	require.NoError(t, l.Flush(l.End().Offset))
	require.Zero(t, l.Unwritten())
	require.NoError(t, l.Sync())
	require.NoError(t, fs.SyncDir("p"))
	require.NoError(t, fs.SyncDir("."))
	for seed := range uint64(5) {
		after := fs.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		l, err := Open(after, vfs.NewCache(after, 2), "p")
		require.NoError(t, err)
		require.Equal(t, ident.Offset(100*records), l.End().Offset)
		for n := 0; n < records; n += 13 { // in every sector
			r, ok := l.AtOffset(ident.Offset(100 * n))
			require.True(t, ok, "seed %d, record %d", seed, n)
			require.Equal(t, ident.Sequence(n), r.First)
		}
	}
}

// openWith opens a log with n chained records of 100 bytes and a message each.
func openWith(t *testing.T, fs vfs.FS, n int) *Log {
	require.NoError(t, fs.MkdirAll("p"))
	l, err := Open(fs, vfs.NewCache(fs, 2), "p")
	require.NoError(t, err)
	for i := range n {
		l.Append(Record{First: ident.Sequence(i), Count: 1, Offset: ident.Offset(100 * i), Size: 100, CRC: uint32(i + 1), PrevCRC: uint32(i)})
	}
	require.NoError(t, l.Flush(l.End().Offset))
	return l
}

// TestFilesThatAPowerCutLeaves: an empty file, and a file from before a Restart whose removal was undone. Neither becomes a part of
// the log, and the next Flush removes both.
func TestFilesThatAPowerCutLeaves(t *testing.T) {
	fs := vfstest.NewMemory()
	l := openWith(t, fs, 10)
	require.NoError(t, l.Close())
	stale, err := fs.List("p")
	require.NoError(t, err)
	require.Equal(t, []string{"00000000000000000000.idx"}, stale)
	r := Record{Epoch: 1, First: 50, Count: 1, Offset: 5000, Size: 100}
	for name, b := range map[string][]byte{fileName("p", 5000): r.AppendTo(nil), fileName("p", 7000): nil} {
		f, err := fs.Create(name)
		require.NoError(t, err)
		_, err = f.WriteAt(b, 0)
		require.NoError(t, err)
	}
	l, err = Open(fs, vfs.NewCache(fs, 2), "p")
	require.NoError(t, err)
	require.Equal(t, ident.Position{Offset: 5000, Sequence: 50}, l.Start())
	require.Equal(t, r.End(), l.End())
	got, ok := l.AtSequence(50)
	require.True(t, ok)
	require.Equal(t, r, got)
	require.NoError(t, l.Flush(l.End().Offset))
	names, err := fs.List("p")
	require.NoError(t, err)
	require.Equal(t, []string{"00000000000000005000.idx"}, names)
	require.Zero(t, l.Unwritten())
}

// TestCutAtAFileAfterDamage: a damaged record hides the number of the record at the cut. A cut where a file begins keeps all older files.
func TestCutAtAFileAfterDamage(t *testing.T) {
	fs := vfstest.NewMemory()
	l := openWith(t, fs, recordsPerFile+100)
	require.NoError(t, fs.Flip(fileName("p", 0), (recordsPerFile+100-cachedRecords)/2*RecordSize, 1)) // where the bisection begins
	l.Truncate(100 * recordsPerFile)
	require.Equal(t, ident.Position{Offset: 100 * recordsPerFile, Sequence: recordsPerFile}, l.End())
	r, ok := l.AtOffset(500)
	require.True(t, ok)
	require.Equal(t, ident.Sequence(5), r.First)
}

// TestCutBeforeAFileAfterDamage: the cut keeps no file that begins after it.
func TestCutBeforeAFileAfterDamage(t *testing.T) {
	fs := vfstest.NewMemory()
	l := openWith(t, fs, recordsPerFile+2*cachedRecords)
	require.NoError(t, fs.Flip(fileName("p", 0), (recordsPerFile+cachedRecords)/2*RecordSize, 1)) // where the bisection begins
	l.Truncate(100 * 1000)
	require.Equal(t, ident.Offset(100*1000), l.End().Offset)
	_, ok := l.Last()
	require.False(t, ok)
}

// TestSyncOfTheNewestFile: older files are synced once, by Sync or in another way.
func TestSyncOfTheNewestFile(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		mem, syncs := vfstest.NewMemory(), 0
		fs := vfstest.Wrap(mem, func(op vfstest.Op) error {
			if op.Call == vfstest.CallSync {
				syncs++
			}
			return nil
		})
		l := openWith(t, fs, 2*recordsPerFile+1)
		if elsewhere {
			l.NoteSynced(l.Flushed())
		} else {
			require.NoError(t, l.Sync())
			require.Equal(t, 3, syncs)
		}
		syncs = 0
		require.NoError(t, l.Sync())
		require.Equal(t, 1, syncs)
	}
}

// TestOpenAfterDamage: a log whose epochs cannot be found is empty, also if its newest records are whole.
func TestOpenAfterDamage(t *testing.T) {
	const records = 4 * cachedRecords
	for _, damaged := range []int64{0, records / 2, records - 2, records - 1} {
		fs := vfstest.NewMemory()
		require.NoError(t, openWith(t, fs, records).Close())
		require.NoError(t, fs.Flip(fileName("p", 0), damaged*RecordSize, 1))
		l, err := Open(fs, vfs.NewCache(fs, 2), "p")
		require.NoError(t, err)
		require.Zero(t, l.End(), "record %d", damaged)
		_, ok := l.Last()
		require.False(t, ok)
	}
}

// TestReadersDuringChanges: each change is made under the lock (the race detector judges).
func TestReadersDuringChanges(t *testing.T) {
	l := openWith(t, vfstest.NewMemory(), 200)
	next := Record{First: 200, Count: 1, Offset: 20000, Size: 100}
	for _, change := range []func(){
		func() { l.Append(next) },
		func() { l.Truncate(19900) },
		func() { require.NoError(t, l.Flush(l.End().Offset)) },
		func() { require.NoError(t, l.Sync()) },
		func() { require.NoError(t, l.TrimHead(ident.Position{Offset: 500, Sequence: 5})) },
		func() { l.TruncateAtGap(0) },
		func() { l.Restart(ident.Position{Offset: 30000, Sequence: 300}) },
	} {
		var reader sync.WaitGroup
		reader.Go(func() {
			l.Start()
			l.End()
			l.Last()
			l.Epochs()
			l.Flushed()
			l.Unwritten()
			l.AtOffset(600)
		})
		change()
		reader.Wait()
	}
}
