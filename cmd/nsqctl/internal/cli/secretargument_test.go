package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASecretInTheArgumentsWarns: a file gives the same secret without a warning, and the warning
// does not repeat the secret.
func TestASecretInTheArgumentsWarns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
	var out bytes.Buffer
	for _, s := range []Security{{TokenFile: file, warnings: &out}, {SecretFile: file, warnings: &out}} {
		require.NoError(t, s.load())
		require.Equal(t, "hunter2", s.AuthSecret())
		require.Empty(t, out.String())
	}
	for _, s := range []Security{{SecretFile: os.DevNull}, {SecretFile: "/nowhere"}, {SecretFile: file, Secret: "x", warnings: &bytes.Buffer{}}} {
		require.ErrorContains(t, s.load(), "--auth-secret-file")
	}
	s := Security{Secret: "hunter2", warnings: &out}
	require.NoError(t, s.load())
	require.Equal(t, "hunter2", s.AuthSecret())
	require.Contains(t, out.String(), "--auth-secret-file")
	require.NotContains(t, out.String(), "hunter2")
}
