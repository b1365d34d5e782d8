package env

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSkipsAreNoted: a skip appends a line for the build server, which fails if a requirement
// is missing.
func TestSkipsAreNoted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skips")
	t.Setenv(skipsEnv, file)
	t.Setenv(ciEnv, "")
	t.Run("long", func(t *testing.T) { Skip(t, "an hour") })
	t.Run("missing", func(t *testing.T) { Missing(t, "a moon", "clouds") })
	noted, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "TestSkipsAreNoted/long: an hour\nTestSkipsAreNoted/missing: needs a moon: clouds\n", string(noted))

	t.Setenv(ciEnv, "1")
	var f failing
	done := make(chan struct{})
	go func() {
		defer close(done)
		Missing(&f, "a moon", "clouds")
	}()
	<-done
	require.True(t, f.failed)
}
