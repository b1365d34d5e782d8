package vfs

import (
	"bytes"
	"io"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConformance holds OS and Memory to the same answers.
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

// TestDirect: what is written past the page cache is read like anything else,
// and what is misaligned is refused rather than written elsewhere.
func TestDirect(t *testing.T) {
	t.Run("os", func(t *testing.T) { direct(t, OS{}, t.TempDir()) })
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
		t.Skip("this file system has no direct writes of sectors")
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

// TestCrashClone: what was synced survives every crash; of the rest, each
// outcome occurs.
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

// TestCacheOfRemovedFile: whoever reads a file while it is removed does not keep
// it open, and its space taken, for long after.
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
