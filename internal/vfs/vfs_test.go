package vfs

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"testing"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/stretchr/testify/require"
)

// TestConformance requires the same results of OS and Memory.
func TestConformance(t *testing.T) {
	t.Run("os", func(t *testing.T) { conformance(t, OS{}, t.TempDir()) })
	t.Run("memory", func(t *testing.T) { conformance(t, NewMemory(), "/") })
	t.Run("faulty", func(t *testing.T) { conformance(t, Wrap(NewMemory(), func(Op) error { return nil }), "/") })
}

func conformance(t *testing.T, fs FS, root string) {
	dir := path.Join(root, "a/b")
	name := path.Join(dir, "f")
	_, err := fs.Create(name)
	require.ErrorIs(t, err, ErrNotExist)
	require.NoError(t, fs.MkdirAll(dir))
	require.NoError(t, fs.MkdirAll(dir))
	_, err = fs.Open(name)
	require.ErrorIs(t, err, ErrNotExist)
	f, err := fs.Create(name)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("hello"), 3)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	f.StartWriteback(0, 8)
	b := make([]byte, 10)
	n, err := f.ReadAt(b, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "\x00\x00\x00hello", string(b[:n]))
	require.NoError(t, f.Truncate(5))
	require.NoError(t, f.Truncate(7))
	n, _ = f.ReadAt(b, 0)
	require.Equal(t, "\x00\x00\x00he\x00\x00", string(b[:n]))
	size, err := f.Size()
	require.NoError(t, err)
	require.Equal(t, int64(7), size)
	require.NoError(t, f.Close())
	require.Error(t, fs.Remove(dir))
	require.NoError(t, fs.Rename(name, path.Join(dir, "g")))
	require.ErrorIs(t, fs.Rename(name, name+"x"), ErrNotExist)
	names, err := fs.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"g"}, names)
	st, err := fs.Stat(path.Join(dir, "g"))
	require.NoError(t, err)
	require.Equal(t, Stat{Size: 7}, st)
	require.NoError(t, fs.SyncDir(dir))
	require.NoError(t, fs.RemoveAll(path.Join(root, "a")))
	require.NoError(t, fs.RemoveAll(path.Join(root, "a")))
	_, err = fs.Stat(dir)
	require.ErrorIs(t, err, ErrNotExist)
	require.ErrorIs(t, fs.Remove(name), ErrNotExist)
	free, err := fs.FreeBytes(root)
	require.NoError(t, err)
	require.Positive(t, free)
}

// TestDirect: data written past the page cache is read like any other, and misaligned writes are
// refused rather than misplaced.
func TestDirect(t *testing.T) {
	t.Run("os", func(t *testing.T) {
		dir, err := os.MkdirTemp(".", "direct-") // of the checkout: a file system in memory has no direct writes
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		direct(t, OS{}, dir)
	})
	t.Run("memory", func(t *testing.T) { direct(t, NewMemory(), "/") })
}

func direct(t *testing.T, fs FS, root string) {
	f, err := fs.Create(path.Join(root, "f"))
	require.NoError(t, err)
	defer f.Close()
	zeroes := make([]byte, 16<<10)
	_, err = f.WriteAt(zeroes, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	if !f.Direct() {
		env.Skip(t, "this file system has no direct writes of sectors")
	}
	for at := range 4 { // any place in memory, any sector
		b := Aligned(bytes.Repeat([]byte{byte('a' + at)}, 3*SectorBytes+at)[at:])
		_, err = f.WriteAt(b, int64(at)*3*SectorBytes)
		require.NoError(t, err)
	}
	require.NoError(t, f.Sync())
	_, err = f.WriteAt(Aligned(zeroes)[:SectorBytes], 1)
	require.Error(t, err)
	seen, err := fs.Open(path.Join(root, "f"))
	require.NoError(t, err)
	defer seen.Close()
	b := make([]byte, 12*SectorBytes)
	_, err = seen.ReadAt(b, 0)
	require.NoError(t, err)
	for i := range b {
		require.Equal(t, byte('a'+i/(3*SectorBytes)), b[i])
	}
}

// TestReadDisk: any range, completely or not at all, with and without support of direct reads.
func TestReadDisk(t *testing.T) {
	t.Run("os", func(t *testing.T) { readsDisk(t, OS{}, t.TempDir()) })
	t.Run("memory", func(t *testing.T) { readsDisk(t, NewMemory(), "/") })
	t.Run("without", func(t *testing.T) { readsDisk(t, indirect{OS{}}, t.TempDir()) })
}

// indirect is a file system without direct reads.
type indirect struct{ OS }

type indirectFile struct{ File }

func (indirectFile) Direct() bool { return false }

func (i indirect) Open(name string) (File, error) {
	f, err := i.OS.Open(name)
	return indirectFile{f}, err
}

func readsDisk(t *testing.T, fs FS, root string) {
	name := path.Join(root, "f")
	f, err := fs.Create(name)
	require.NoError(t, err)
	defer f.Close()
	content := make([]byte, 5000)
	for i := range content {
		content[i] = byte(i ^ i>>8)
	}
	_, err = f.WriteAt(content, 0)
	require.NoError(t, err)
	for _, at := range []int64{0, 1, 511, 512, 513, 4095, 4096, 4999, 5000} {
		for _, n := range []int64{0, 1, 510, 512, 1025, 5000 - at} {
			b, err := ReadDisk(fs, name, at, n)
			if at+n <= 5000 {
				require.NoError(t, err, "%d at %d", n, at)
				require.Equal(t, content[at:at+n], b)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d at %d", n, at)
			}
		}
	}
	_, err = ReadDisk(fs, path.Join(root, "missing"), 0, 1)
	require.ErrorIs(t, err, ErrNotExist)
}

// TestReadDiskPastTheCache: it sees decay below the page cache, and unsynced writes.
func TestReadDiskPastTheCache(t *testing.T) {
	m := NewMemory()
	f, err := m.Create("f")
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 3*SectorBytes), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, m.FlipDisk("f", 700, 1))
	_, err = f.WriteAt([]byte("new"), 2*SectorBytes)
	require.NoError(t, err)
	cached := make([]byte, 1)
	_, err = f.ReadAt(cached, 700)
	require.NoError(t, err)
	require.Zero(t, cached[0])
	b, err := ReadDisk(m, "f", 690, 400)
	require.NoError(t, err)
	require.EqualValues(t, 2, b[10])
	require.Equal(t, "new", string(b[2*SectorBytes-690:][:3]))
	require.Error(t, m.FlipDisk("f", 3*SectorBytes, 1))
}

// TestCrashClone: synced data survives every crash; for the rest, every outcome occurs.
func TestCrashClone(t *testing.T) {
	m := NewMemory()
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, m.SyncDir("/"))
	f, err := m.Create("d/f")
	require.NoError(t, err)
	old, fresh := make([]byte, 3*SectorBytes), make([]byte, 3*SectorBytes)
	for i := range old {
		old[i], fresh[i] = 'o', 'n'
	}
	_, err = f.WriteAt(old, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("d"))
	_, err = f.WriteAt(fresh, 0)
	require.NoError(t, err)
	require.NoError(t, m.Rename("d/f", "d/g"))
	rng := rand.New(rand.NewPCG(1, 1))
	names, sectors := map[string]int{}, map[string]int{}
	for range 200 {
		c := m.CrashClone(rng)
		list, err := c.List("d")
		require.NoError(t, err)
		require.Len(t, list, 1, "a rename is atomic")
		names[list[0]]++
		g, err := c.Open("d/" + list[0])
		require.NoError(t, err)
		b := make([]byte, 3*SectorBytes)
		_, err = g.ReadAt(b, 0)
		require.NoError(t, err)
		sectors[string([]byte{b[0], b[SectorBytes], b[2*SectorBytes]})]++
		require.Equal(t, b[0], b[SectorBytes-1], "a sector is not torn")
	}
	require.Len(t, names, 2)
	require.Len(t, sectors, 8)
}

func TestCrashLosesUnsyncedFiles(t *testing.T) {
	m := NewMemory()
	_, err := m.Create("f")
	require.NoError(t, err)
	lost := 0
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		if _, err := m.CrashClone(rng).Stat("f"); err != nil {
			lost++
		}
	}
	require.Positive(t, lost)
	require.NoError(t, m.SyncDir("/"))
	for range 20 {
		_, err := m.CrashClone(rng).Stat("f")
		require.NoError(t, err)
	}
}

func TestCache(t *testing.T) {
	m := NewMemory()
	c := NewCache(m, 2)
	for _, name := range []string{"a", "b", "c"} {
		h, err := c.Create(name)
		require.NoError(t, err)
		h.Release()
		require.LessOrEqual(t, len(c.mu.open), 2)
	}
	one, err := c.Open("a")
	require.NoError(t, err)
	two, err := c.Open("a")
	require.NoError(t, err)
	require.Same(t, one, two)
	require.NoError(t, c.Forget("a"))
	one.Release()
	two.Release()
	require.NotContains(t, c.mu.open, "a")
	_, err = c.Open("missing")
	require.ErrorIs(t, err, ErrNotExist)
	require.NoError(t, c.Close())
	require.Empty(t, c.mu.open)
}

// TestCacheOfRemovedFile: a reader during the removal of a file does not keep the file open, and
// its space in use, for long.
func TestCacheOfRemovedFile(t *testing.T) {
	var c *Cache
	c = NewCache(Wrap(NewMemory(), func(op Op) error {
		if op.Call == CallRemove {
			reader, err := c.Open(op.Name)
			require.NoError(t, err)
			reader.Release()
		}
		return nil
	}), 2)
	h, err := c.Create("a")
	require.NoError(t, err)
	h.Release()
	require.NoError(t, c.Remove("a"))
	require.Empty(t, c.mu.open)
	_, err = c.Open("a")
	require.ErrorIs(t, err, ErrNotExist)
}
