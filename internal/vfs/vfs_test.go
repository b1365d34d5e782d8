package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"testing"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/stretchr/testify/require"
)

// TestConformance requires the same results of OS and Memory.
func TestConformance(t *testing.T) {
	t.Run("os", func(t *testing.T) { conformance(t, vfs.OS, t.TempDir()) })
	t.Run("memory", func(t *testing.T) { conformance(t, vfstest.NewMemory(), "/") })
	t.Run("faulty", func(t *testing.T) {
		conformance(t, vfstest.Wrap(vfstest.NewMemory(), func(vfstest.Op) error { return nil }), "/")
	})
}

func conformance(t *testing.T, fs vfs.FS, root string) {
	dir := path.Join(root, "a/b")
	name := path.Join(dir, "f")
	_, err := fs.Create(name)
	require.ErrorIs(t, err, vfs.ErrNotExist)
	require.NoError(t, fs.MkdirAll(dir))
	require.NoError(t, fs.MkdirAll(dir))
	_, err = fs.Open(name)
	require.ErrorIs(t, err, vfs.ErrNotExist)
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
	require.ErrorIs(t, fs.Rename(name, name+"x"), vfs.ErrNotExist)
	names, err := fs.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"g"}, names)
	st, err := fs.Stat(path.Join(dir, "g"))
	require.NoError(t, err)
	require.Equal(t, vfs.Stat{Size: 7}, st)
	require.NoError(t, fs.SyncDir(dir))
	require.NoError(t, fs.RemoveAll(path.Join(root, "a")))
	require.NoError(t, fs.RemoveAll(path.Join(root, "a")))
	_, err = fs.Stat(dir)
	require.ErrorIs(t, err, vfs.ErrNotExist)
	require.ErrorIs(t, fs.Remove(name), vfs.ErrNotExist)
	disk, err := fs.OpenDisk(root)
	if !errors.Is(err, errors.ErrUnsupported) {
		require.NoError(t, err)
		require.NoError(t, disk.Sync())
		require.NoError(t, disk.Close())
	}
	_, err = fs.OpenDisk(dir)
	require.ErrorIs(t, err, vfs.ErrNotExist)
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
		direct(t, vfs.OS, dir)
	})
	t.Run("memory", func(t *testing.T) { direct(t, vfstest.NewMemory(), "/") })
}

func direct(t *testing.T, fs vfs.FS, root string) {
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
		b := vfs.Aligned(bytes.Repeat([]byte{byte('a' + at)}, 3*vfs.SectorBytes+at)[at:])
		_, err = f.WriteAt(b, int64(at)*3*vfs.SectorBytes)
		require.NoError(t, err)
	}
	require.NoError(t, f.Sync())
	_, err = f.WriteAt(vfs.Aligned(zeroes)[:vfs.SectorBytes], 1)
	require.Error(t, err)
	seen, err := fs.Open(path.Join(root, "f"))
	require.NoError(t, err)
	defer seen.Close()
	b := make([]byte, 12*vfs.SectorBytes)
	_, err = seen.ReadAt(b, 0)
	require.NoError(t, err)
	for i := range b {
		require.Equal(t, byte('a'+i/(3*vfs.SectorBytes)), b[i])
	}
}

// TestReadDisk: any range, completely or not at all, with and without support of direct reads.
func TestReadDisk(t *testing.T) {
	t.Run("os", func(t *testing.T) { readsDisk(t, vfs.OS, t.TempDir()) })
	t.Run("memory", func(t *testing.T) { readsDisk(t, vfstest.NewMemory(), "/") })
	t.Run("without", func(t *testing.T) { readsDisk(t, indirect{vfs.OS}, t.TempDir()) })
}

// indirect is a file system without direct reads.
type indirect struct{ vfs.FS }

type indirectFile struct{ vfs.File }

func (indirectFile) Direct() bool { return false }

func (i indirect) Open(name string) (vfs.File, error) {
	f, err := i.FS.Open(name)
	return indirectFile{f}, err
}

func readsDisk(t *testing.T, fs vfs.FS, root string) {
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
			b, err := vfs.ReadDisk(fs, name, at, n)
			if at+n <= 5000 {
				require.NoError(t, err, "%d at %d", n, at)
				require.Equal(t, content[at:at+n], b)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d at %d", n, at)
			}
		}
	}
	_, err = vfs.ReadDisk(fs, path.Join(root, "missing"), 0, 1)
	require.ErrorIs(t, err, vfs.ErrNotExist)
}

// TestReadDiskPastTheCache: it sees decay below the page cache, and unsynced writes.
func TestReadDiskPastTheCache(t *testing.T) {
	m := vfstest.NewMemory()
	f, err := m.Create("f")
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 3*vfs.SectorBytes), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, m.FlipDisk("f", 700, 1))
	_, err = f.WriteAt([]byte("new"), 2*vfs.SectorBytes)
	require.NoError(t, err)
	cached := make([]byte, 1)
	_, err = f.ReadAt(cached, 700)
	require.NoError(t, err)
	require.Zero(t, cached[0])
	b, err := vfs.ReadDisk(m, "f", 690, 400)
	require.NoError(t, err)
	require.EqualValues(t, 2, b[10])
	require.Equal(t, "new", string(b[2*vfs.SectorBytes-690:][:3]))
	require.Error(t, m.FlipDisk("f", 3*vfs.SectorBytes, 1))
}

// TestCrashClone: synced data survives every crash; for the rest, every outcome occurs.
func TestCrashClone(t *testing.T) {
	m := vfstest.NewMemory()
	require.NoError(t, m.MkdirAll("d"))
	require.NoError(t, m.SyncDir("/"))
	f, err := m.Create("d/f")
	require.NoError(t, err)
	old, fresh := make([]byte, 3*vfs.SectorBytes), make([]byte, 3*vfs.SectorBytes)
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
		b := make([]byte, 3*vfs.SectorBytes)
		_, err = g.ReadAt(b, 0)
		require.NoError(t, err)
		sectors[string([]byte{b[0], b[vfs.SectorBytes], b[2*vfs.SectorBytes]})]++
		require.Equal(t, b[0], b[vfs.SectorBytes-1], "a sector is not torn")
	}
	require.Len(t, names, 2)
	require.Len(t, sectors, 8)
}

func TestCrashLosesUnsyncedFiles(t *testing.T) {
	m := vfstest.NewMemory()
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
