package vfs

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	dir := t.TempDir()
	c := NewCache(OS, 2)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, c.Create(path.Join(dir, name)))
		require.LessOrEqual(t, len(c.mu.open), 2)
	}
	a := path.Join(dir, "a")
	require.NoError(t, c.Use(a, func(one File) error {
		require.NoError(t, c.Use(a, func(two File) error {
			require.Equal(t, one, two)
			return c.Forget(a)
		}))
		_, err := one.Size()
		require.NoError(t, err, "the file stays open until its last user has released it")
		return nil
	}))
	require.NotContains(t, c.mu.open, a)
	require.ErrorIs(t, c.Use(path.Join(dir, "missing"), func(File) error { return nil }), ErrNotExist)
	require.NoError(t, c.Close())
	require.Empty(t, c.mu.open)
}

// removal calls a function before it removes a file.
type removal struct {
	FS
	before func(name string)
}

func (r removal) Remove(name string) error {
	r.before(name)
	return r.FS.Remove(name)
}

// TestCacheOfRemovedFile: a reader during the removal of a file does not keep the file open, and
// its space in use, for long.
func TestCacheOfRemovedFile(t *testing.T) {
	var c *Cache
	c = NewCache(removal{FS: OS, before: func(name string) {
		require.NoError(t, c.Use(name, func(File) error { return nil }))
	}}, 2)
	a := path.Join(t.TempDir(), "a")
	require.NoError(t, c.Create(a))
	require.NoError(t, c.Remove(a))
	require.Empty(t, c.mu.open)
	require.ErrorIs(t, c.Use(a, func(File) error { return nil }), ErrNotExist)
	require.ErrorIs(t, OS.Remove(a), ErrNotExist)
}
