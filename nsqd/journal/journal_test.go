package journal

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text string

func (s text) AppendTo(b []byte) []byte { return append(b, s...) }

// owner waits for submissions.
type owner struct {
	mu   sync.Mutex
	cond sync.Cond
	n    uint64
	mark Mark
	err  error
}

func newOwner() *owner {
	o := &owner{}
	o.cond.L = &o.mu
	return o
}

func (o *owner) durable(n uint64, at Mark, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n, o.err = n, err; err == nil {
		o.mark = Mark{Group: at.Group, CRC: at.CRC}
	}
	o.cond.Broadcast()
}

func (o *owner) wait(n uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.n < n && o.err == nil {
		o.cond.Wait()
	}
	return o.err
}

func open(t *testing.T, fs vfs.FS, from Mark) (*Journal, []string, Recovery) {
	t.Helper()
	var got []string
	j, r, err := Open(Options{FS: fs, Dir: "j", FileBytes: 16 << 10}, from, func(body []byte) error {
		got = append(got, string(body))
		return nil
	})
	require.NoError(t, err)
	return j, got, r
}

// begin is the mark of a journal that was never used: a new one skips a number, as after any
// recovery, and the first checkpoint contains it.
var begin = Mark{Group: 1, Synced: 1}

// fill writes n groups, each awaited, and leaves the journal running.
func fill(t *testing.T, fs vfs.FS, n int) (*Journal, *owner, []string) {
	t.Helper()
	j, got, _ := open(t, fs, Mark{})
	require.Empty(t, got)
	require.Equal(t, begin, j.Mark())
	require.NoError(t, fs.SyncDir("."))
	o := newOwner()
	require.NoError(t, j.Start(o.durable))
	var want []string
	for i := range n {
		s := fmt.Sprintf("%d %s", i, strings.Repeat("x", i*37%3000))
		want = append(want, s)
		require.NoError(t, o.wait(j.Submit(text(s))))
	}
	return j, o, want
}

func TestReplay(t *testing.T) {
	fs := vfstest.NewMemory()
	j, _, want := fill(t, fs, 60)
	syncs, _ := j.Written()
	require.EqualValues(t, 60, syncs)
	j.Submit(text("queued when the journal is closed"))
	require.NoError(t, j.Close())
	_, got, r := open(t, fs, begin)
	require.Equal(t, append(want, "queued when the journal is closed"), got)
	require.Equal(t, 61, r.Groups)
	require.NoError(t, r.Corrupt)
	require.False(t, r.Torn)
}

// TestEveryCallOfAStartFails: a start returns the error of the disk, whichever call fails.
func TestEveryCallOfAStartFails(t *testing.T) {
	mem := vfstest.NewMemory()
	j, _, _ := fill(t, mem, 60)
	require.NoError(t, j.Close())
	require.NoError(t, mem.Remove("j/"+ackName), "so the last group is written again")
	require.NoError(t, rewritten(mem, fileName("j", 100), 8<<10), "a file of another size is removed")
	require.NoError(t, mem.SyncDir("j"))
	var disk *vfstest.Memory
	start := func(n int) (calls int, err error) {
		disk = mem.CrashClone(rand.New(rand.NewPCG(1, 1)))
		fs := vfstest.Wrap(disk, func(vfstest.Op) error {
			if calls++; calls == n {
				return syscall.EIO
			}
			return nil
		})
		j, _, err := Open(Options{FS: fs, Dir: "j", FileBytes: 16 << 10}, begin, func([]byte) error { return nil })
		if err != nil {
			return calls, err
		}
		err = j.Start(func(uint64, Mark, error) {}) // the goroutines have free files, and make no call
		return calls, errors.Join(err, j.Close())
	}
	before, err := mem.List("j")
	require.NoError(t, err)
	total, err := start(0)
	require.NoError(t, err)
	after, err := disk.List("j")
	require.NoError(t, err)
	require.Equal(t, append(slices.DeleteFunc(before, func(name string) bool { return "j/"+name == fileName("j", 100) }), ackName), after)
	for n := 1; n <= total; n++ {
		_, err := start(n)
		require.ErrorIs(t, err, syscall.EIO, "call %d", n)
	}
}

// TestBarrierWaitsForTheAnswer: a group is written and answered under the lock that Barrier waits for.
func TestBarrierWaitsForTheAnswer(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		j, _, err := Open(Options{FS: vfstest.NewMemory(), Dir: "j", FileBytes: 16 << 10, NoSync: noSync}, Mark{}, func([]byte) error { return nil })
		require.NoError(t, err)
		var free atomic.Bool
		o := newOwner()
		require.NoError(t, j.Start(func(n uint64, at Mark, err error) {
			if j.writing.TryLock() {
				free.Store(true)
				j.writing.Unlock()
			}
			o.durable(n, at, err)
		}))
		for range 2 { // the journal's goroutine writes the first, because it begins a file
			n := j.Submit(text("a group"))
			j.Flush()
			require.NoError(t, o.wait(n))
		}
		require.NoError(t, j.Close())
		require.False(t, free.Load())
	}
}

func TestOversizedGroup(t *testing.T) {
	fs := vfstest.NewMemory()
	j, o, want := fill(t, fs, 3)
	big := strings.Repeat("y", 100<<10)
	for _, s := range []string{big, "after"} {
		require.NoError(t, o.wait(j.Submit(text(s))))
		want = append(want, s)
	}
	require.NoError(t, j.Close())
	_, got, _ := open(t, fs, begin)
	require.Equal(t, want, got)
}

// TestReuseOfFiles: released files are reused, and their old groups never count as new ones.
func TestReuseOfFiles(t *testing.T) {
	fs := vfstest.NewMemory()
	j, o, _ := fill(t, fs, 100)
	mark := o.mark
	require.NoError(t, j.Release(mark.Group))
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprint("new ", i, strings.Repeat("x", 10<<10))) // each in a file of its own
		require.NoError(t, o.wait(j.Submit(text(want[i]))))
	}
	names, err := fs.List("j")
	require.NoError(t, err)
	require.LessOrEqual(t, len(names), maxFree+3, "the acknowledgement record is one of them")
	clone := fs.CrashClone(rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, j.Close())
	again, got, r := open(t, clone, mark)
	require.Equal(t, want, got)
	require.NoError(t, r.Corrupt)
	require.Greater(t, again.next, mark.Group+6)
	_, got, r = open(t, clone, Mark{})
	require.Greater(t, len(got), len(want), "a lost mark: the newest groups without a gap")
	require.Equal(t, want, got[len(got)-len(want):])
	require.NoError(t, r.Corrupt)
}

// TestBreak: the meaning of a damaged group depends on the existence of a later one.
func TestBreak(t *testing.T) {
	fs := vfstest.NewMemory()
	j, _, want := fill(t, fs, 3) // bodies smaller than a page: groups at 0, 512, 1024
	mark := j.Mark()
	require.NoError(t, j.Close())
	clone := func() *vfstest.Memory { return fs.CrashClone(rand.New(rand.NewPCG(1, 1))) }
	name := fileName("j", 0)

	torn := clone()
	require.NoError(t, torn.Flip(name, 1024+headerSize+1, 0))
	_, got, r := open(t, torn, begin)
	require.Equal(t, want[:2], got)
	require.True(t, r.Torn)
	require.NoError(t, r.Corrupt)

	_, _, r = open(t, torn, Mark{Group: 1, Synced: mark.Group})
	require.ErrorIs(t, r.Corrupt, errCorrupt, "the checkpoint proves that it was acknowledged")

	for _, at := range []int64{512, 512 + headerSize} {
		corrupt := clone()
		require.NoError(t, corrupt.Flip(name, at, 0))
		_, got, r = open(t, corrupt, begin)
		require.Equal(t, []string{want[0], want[2]}, got, "the later group is salvaged")
		require.ErrorIs(t, r.Corrupt, errCorrupt)
		require.Equal(t, 1, r.Salvaged)
		require.EqualValues(t, len(want[0]+want[2]), r.Bytes)
	}

	lost := clone()
	require.NoError(t, lost.Remove(name))
	_, _, r = open(t, lost, Mark{Group: 1, Synced: mark.Group})
	require.ErrorIs(t, r.Corrupt, errCorrupt)
}

// TestForgedGroups: a message that looks like groups, as any client may publish one, stays a
// message.
func TestForgedGroups(t *testing.T) {
	fs := vfstest.NewMemory()
	j, o, want := fill(t, fs, 3)
	forged := make([]byte, 0, 64<<10)
	for i := uint64(1); len(forged)+headerSize < cap(forged); i++ {
		b := make([]byte, headerSize)
		header{Generation: i, Group: 1<<40 + i, Synced: 1 << 40}.put(b)
		forged = append(forged, append(b, make([]byte, i%16)...)...)
	}
	for range 3 { // at every place where a group of 512 bytes may begin
		require.NoError(t, o.wait(j.Submit(text(forged))))
		want = append(want, string(forged))
	}
	require.NoError(t, j.Close())
	_, got, r := open(t, fs, begin)
	require.NoError(t, r.Corrupt)
	require.False(t, r.Torn)
	require.Equal(t, want, got)
}

// TestFailingSync: the first error is final and answers every submission, later ones included.
func TestFailingSync(t *testing.T) {
	for _, call := range []vfstest.Call{vfstest.CallSync, vfstest.CallWrite} {
		var broken bool
		var mu sync.Mutex
		fs := vfstest.Wrap(vfstest.NewMemory(), func(op vfstest.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && op.Call == call {
				return syscall.EIO
			}
			return nil
		})
		j, o, _ := fill(t, fs, 3)
		mu.Lock()
		broken = true
		mu.Unlock()
		require.ErrorIs(t, o.wait(j.Submit(text("lost"))), syscall.EIO)
		mu.Lock()
		broken = false
		mu.Unlock()
		require.ErrorIs(t, o.wait(j.Submit(text("refused"))), syscall.EIO)
		require.ErrorIs(t, j.Close(), syscall.EIO)
	}
}

// TestReplayIsDurable: the next start reads a group whose sync failed from the page cache. After
// the replay a power cut does not lose it.
func TestReplayIsDurable(t *testing.T) {
	mem := vfstest.NewMemory()
	var broken atomic.Bool
	j, o, want := fill(t, vfstest.Wrap(mem, func(op vfstest.Op) error {
		if broken.Load() && op.Call == vfstest.CallSync {
			mem.DropWriteback(op.Name)
			return syscall.EIO
		}
		return nil
	}), 3)
	broken.Store(true)
	require.ErrorIs(t, o.wait(j.Submit(text("in the cache"))), syscall.EIO)
	require.ErrorIs(t, j.Close(), syscall.EIO)
	_, got, _ := open(t, mem, begin)
	require.Equal(t, append(want, "in the cache"), got)
	for k := range uint64(8) {
		_, again, _ := open(t, mem.CrashClone(rand.New(rand.NewPCG(1, k))), begin)
		require.Equal(t, got, again)
	}
}

func TestReplayError(t *testing.T) {
	fs := vfstest.NewMemory()
	j, _, _ := fill(t, fs, 3)
	require.NoError(t, j.Close())
	stop := errors.New("stop")
	_, _, err := Open(Options{FS: fs, Dir: "j", FileBytes: 16 << 10}, begin, func([]byte) error { return stop })
	require.ErrorIs(t, err, stop)
}

func TestGolden(t *testing.T) {
	body := "hello"
	b := make([]byte, headerSize)
	b = append(b, body...)
	h := header{Length: 5, BodyCRC: 0x9a71bb4c, PrevCRC: 0x01020304, Generation: 2, Group: 10, Synced: 9}
	h.put(b)
	golden, err := os.ReadFile("testdata/group.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(b))
	got, gotBody, n, err := DecodeGroup(b)
	require.NoError(t, err)
	require.Equal(t, body, string(gotBody))
	require.Equal(t, Align, n)
	require.Equal(t, uint64(10), got.Group)
}

func FuzzDecodeGroup(f *testing.F) {
	b := append(make([]byte, headerSize), "hello"...)
	header{Length: 5, BodyCRC: 0x9a71bb4c, Generation: 2, Group: 10, Synced: 9}.put(b)
	f.Add(b)
	f.Add(b[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, n, err := DecodeGroup(b)
		if err == nil {
			require.Len(t, body, int(h.Length))
			require.Zero(t, n%Align)
			require.Less(t, h.Synced, h.Group)
		}
		r := &replayer{next: 1}
		require.NoError(t, r.replay([]*image{{data: b}}, func([]byte) error { return nil }))
	})
}

// TestFlushWrites: without syncs, the submitting goroutine writes. The journal's goroutine takes
// part if several submit or a file is full. Nothing is left unwritten, and the order is kept.
func TestFlushWrites(t *testing.T) {
	fs := vfstest.NewMemory()
	o := newOwner()
	var got []string
	unsynced := Options{FS: fs, Dir: "j", FileBytes: 16 << 10, NoSync: true}
	collect := func(body []byte) error { got = append(got, string(body)); return nil }
	j, _, err := Open(unsynced, Mark{}, collect)
	require.NoError(t, err)
	first := j.Mark()
	require.NoError(t, j.Start(o.durable))
	submit := func(s string) uint64 {
		n := j.Submit(text(s))
		j.Flush()
		return n
	}
	require.NoError(t, o.wait(submit("begins a file;")))
	j.writing.Lock()
	require.NotNil(t, j.file, "the journal's goroutine, which began the file, is done with it")
	j.writing.Unlock()
	require.Equal(t, uint64(2), submit("alone;"))
	require.Equal(t, uint64(2), o.n, "durable was not called yet")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 200 {
				if err := o.wait(submit(fmt.Sprintf("%d.%d %s;", g, i, strings.Repeat("x", i*37%3000)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, j.Close())
	require.EqualValues(t, 802, o.n)
	_, _, err = Open(unsynced, first, collect)
	require.NoError(t, err)
	var next [4]int
	for i, s := range strings.Split(strings.TrimSuffix(strings.Join(got, ""), ";"), ";") {
		if i < 2 {
			continue
		}
		var g, n int
		_, err := fmt.Sscanf(s, "%d.%d", &g, &n)
		require.NoError(t, err)
		require.Equal(t, next[g], n)
		next[g]++
	}
	require.Equal(t, [4]int{200, 200, 200, 200}, next)
}

// TestUnsyncedGroupsAreNotDurable: without syncs no group counts as durable, or a start after a power cut would take a torn
// group for damage and fail.
func TestUnsyncedGroupsAreNotDurable(t *testing.T) {
	o := newOwner()
	j, _, err := Open(Options{FS: vfstest.NewMemory(), Dir: "j", FileBytes: 16 << 10, NoSync: true}, Mark{}, func([]byte) error { return nil })
	require.NoError(t, err)
	first := j.Mark()
	require.NoError(t, j.Start(o.durable))
	for range 3 {
		n := j.Submit(text("a group"))
		j.Flush()
		require.NoError(t, o.wait(n))
	}
	require.NoError(t, j.Close())
	require.Equal(t, first.Group+3, j.Mark().Group)
	require.Equal(t, first.Synced, j.Mark().Synced)
	syncs, _ := j.Written()
	require.Zero(t, syncs)
}

// TestFlushFails: an error of the write answers its submitter and all later ones.
func TestFlushFails(t *testing.T) {
	var broken atomic.Bool
	fs := vfstest.Wrap(vfstest.NewMemory(), func(op vfstest.Op) error {
		if broken.Load() && op.Call == vfstest.CallWrite {
			return syscall.EIO
		}
		return nil
	})
	j, _, err := Open(Options{FS: fs, Dir: "j", FileBytes: 16 << 10, NoSync: true}, Mark{}, func([]byte) error { return nil })
	require.NoError(t, err)
	o := newOwner()
	require.NoError(t, j.Start(o.durable))
	for _, s := range []string{"a", "b"} {
		n := j.Submit(text(s))
		j.Flush()
		require.NoError(t, o.wait(n))
	}
	broken.Store(true)
	for _, s := range []string{"lost", "refused"} {
		n := j.Submit(text(s))
		j.Flush()
		require.ErrorIs(t, o.wait(n), syscall.EIO)
		broken.Store(false)
	}
	require.ErrorIs(t, j.Close(), syscall.EIO)
}

// TestHugeGroup: the submissions during a hanging sync become one group of any size, whose header a
// replay accepts.
func TestHugeGroup(t *testing.T) {
	var b [headerSize]byte
	header{Length: math.MaxUint32, Generation: 1, Group: 1}.put(b[:])
	h, err := decodeHeader(b[:])
	require.NoError(t, err)
	require.Equal(t, uint32(math.MaxUint32), h.Length)
}

// TestDecayBelowTheMark: a group below the mark decays; the groups above it in the same file are
// whole.
func TestDecayBelowTheMark(t *testing.T) {
	for _, at := range []int64{3, headerSize + 1} {
		for group := range 2 {
			fs := vfstest.NewMemory()
			j, o, want := fill(t, fs, 2)
			mark := o.mark
			for _, s := range []string{"third", "fourth"} {
				want = append(want, s)
				require.NoError(t, o.wait(j.Submit(text(s))))
			}
			require.NoError(t, j.Close())
			require.NoError(t, fs.Flip(fileName("j", 0), int64(group)*Align+at, 0))
			again, got, r := open(t, fs, mark)
			require.Equal(t, want[2:], got)
			require.NoError(t, r.Corrupt)
			require.NoError(t, again.Close())
		}
	}
}

// TestReleaseKeepsUncheckpointedFiles: a file is reused only after all its groups are in a
// checkpoint.
func TestReleaseKeepsUncheckpointedFiles(t *testing.T) {
	j, _, _ := fill(t, vfstest.NewMemory(), 60)
	oldest := func() *logFile {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.mu.used[0]
	}
	first := oldest()
	require.NoError(t, j.Release(first.last-1))
	require.Same(t, first, oldest())
	require.NoError(t, j.Release(first.last))
	require.NotSame(t, first, oldest())
	require.NoError(t, j.Close())
}

// TestFailureIsReportedAtOnce: also without a submission. Later errors follow from the first and
// are ignored.
func TestFailureIsReportedAtOnce(t *testing.T) {
	j, o, _ := fill(t, vfstest.NewMemory(), 3)
	first := errors.New("the checkpoint failed")
	j.Fail(first)
	j.Fail(errors.New("and so did this"))
	wait.Until(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.err != nil
	}, "the sink has the failure")
	require.Equal(t, first, o.wait(1000))
	require.ErrorIs(t, j.Close(), first)
}

// TestMissingFiles: the mark counts the files that had groups. A start with fewer of them, or shorter or empty ones, is corrupt also if
// all groups after the mark can be read. The count continues after a restart.
func TestMissingFiles(t *testing.T) {
	for name, harm := range map[string]func(fs *vfstest.Memory, file string) error{
		"none":    nil,
		"gone":    func(fs *vfstest.Memory, file string) error { return fs.Remove(file) },
		"empty":   func(fs *vfstest.Memory, file string) error { return rewritten(fs, file, 16<<10) },
		"shorter": func(fs *vfstest.Memory, file string) error { return rewritten(fs, file, 8<<10) },
	} {
		fs := vfstest.NewMemory()
		j, _, _ := fill(t, fs, 60)
		mark := j.Mark()
		require.Greater(t, mark.Files, 2)
		require.NoError(t, j.Close())
		if harm != nil {
			require.NoError(t, harm(fs, fileName("j", 0)))
		}
		again, got, r := open(t, fs, mark)
		require.Empty(t, got)
		if harm != nil {
			require.ErrorIs(t, r.Corrupt, errCorrupt, name)
		} else {
			require.NoError(t, r.Corrupt)
			require.Equal(t, mark.Files, again.Mark().Files)
			o := newOwner()
			require.NoError(t, again.Start(o.durable))
			require.NoError(t, o.wait(again.Submit(text("next"))))
			require.Equal(t, mark.Files, again.Mark().Files)
		}
		require.NoError(t, again.Close())
	}
}

// TestReleaseLeavesAsManyFilesAsTheMarkCounts: also if the current file has no durable group yet.
func TestReleaseLeavesAsManyFilesAsTheMarkCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, current, firstGroup := vfstest.NewMemory(), fileName("j", maxFree), make(chan struct{})
		var syncs atomic.Int64
		j, o := syncedFill(t, mem, func(op vfstest.Op) error {
			if op.Call == vfstest.CallSync && op.Name == current && syncs.Add(1) == 2 {
				<-firstGroup // the sync before this one was of the new file's zeros
			}
			return nil
		}, false, 0)
		for range maxFree {
			require.NoError(t, o.wait(j.Submit(text(strings.Repeat("x", 16<<10-headerSize))))) // fills a file
		}
		last := j.Submit(text("x"))
		synctest.Wait() // there is a spare file without groups, and the last group is not durable
		mark := j.Mark()
		require.Equal(t, maxFree, mark.Files)
		require.NoError(t, j.Release(mark.Group))
		var corrupt error
		for seed := range uint64(32) {
			_, _, r := open(t, mem.CrashClone(rand.New(rand.NewPCG(seed, 1))), mark)
			corrupt = cmp.Or(corrupt, r.Corrupt)
		}
		close(firstGroup)
		require.NoError(t, o.wait(last))
		require.NoError(t, j.Close())
		require.NoError(t, corrupt, "after a power cut")
	})
}

// TestBegunFileStaysBegun: the remains of a torn first group do not count as a group, because the next group's zeros may
// replace them without its header.
func TestBegunFileStaysBegun(t *testing.T) {
	fs := vfstest.NewMemory()
	j, _, _ := fill(t, fs, 3)
	mark := j.Mark()
	require.NoError(t, j.Close())
	torn := fileName("j", 9)
	f, err := fs.Create(torn)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("the end of a torn group"), 3*Align)
	require.NoError(t, err)
	require.NoError(t, errors.Join(f.Truncate(16<<10), f.Close()))
	again, _, r := open(t, fs, mark)
	require.NoError(t, r.Corrupt)
	mark = again.Mark()
	require.NoError(t, again.Close())
	require.NoError(t, rewritten(fs, torn, 16<<10))
	again, _, r = open(t, fs, mark)
	require.NoError(t, r.Corrupt)
	require.NoError(t, again.Close())
}

// rewritten replaces a file by zeros.
func rewritten(fs *vfstest.Memory, name string, size int64) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Truncate(size), f.Close())
}
