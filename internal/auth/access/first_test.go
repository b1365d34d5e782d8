package access_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
)

// TestTheFirstSecret: it stays over restarts. A file that lost its bytes in a power cut has no secret that somebody knows: there is a new
// one, and the broker starts. Any other text is refused.
func TestTheFirstSecret(t *testing.T) {
	dir := t.TempDir()
	secret, file, err := access.OpenFirst(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, access.FirstFile), file)
	again, _, err := access.OpenFirst(dir)
	require.NoError(t, err)
	require.Equal(t, secret, again)
	require.NoError(t, os.Truncate(file, 0))
	other, _, err := access.OpenFirst(dir)
	require.NoError(t, err)
	require.NotEqual(t, secret, other)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found, ok := access.ParseFirst(text)
	require.True(t, ok)
	require.Equal(t, string(other), found)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.NoError(t, os.WriteFile(file, []byte("first-admin.cut"), 0o600))
	_, _, err = access.OpenFirst(dir)
	require.ErrorContains(t, err, "has no secret for the first administrator: remove it")
}
