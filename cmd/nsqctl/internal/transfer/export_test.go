package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
)

// TestExportReplacesARegularFile: a pipe, a device and a directory stay what they are, the file that a link names
// is replaced and not the link, and a failed export leaves what was there.
func TestExportReplacesARegularFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	for _, name := range []string{at("pipe"), dir, os.DevNull} {
		_, _, err := (&exporting{file: name}).output(nil)
		require.ErrorContains(t, err, "is not a regular file")
	}
	_, _, err := (&exporting{file: at("no/folder")}).output(nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	write := func(name string, failure error) error {
		out, commit, err := (&exporting{file: name}).output(nil)
		require.NoError(t, err)
		_, err = out.Write([]byte(msgstream.Magic))
		require.NoError(t, err)
		return commit(failure)
	}
	require.NoError(t, write(at("file"), nil))
	require.NoError(t, os.WriteFile(at("old"), []byte("old"), 0o600))
	require.NoError(t, os.Symlink(at("old"), at("link")))
	failed := errors.New("the leader is gone")
	require.ErrorIs(t, write(at("link"), failed), failed)
	content, err := os.ReadFile(at("old"))
	require.NoError(t, err)
	require.Equal(t, "old", string(content))
	require.NoError(t, write(at("link"), nil))
	for _, name := range []string{"file", "old"} {
		info, err := os.Lstat(at(name))
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular())
		content, err := os.ReadFile(at(name))
		require.NoError(t, err)
		require.Equal(t, msgstream.Magic, string(content))
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 4, "no temporary file stays")
}
