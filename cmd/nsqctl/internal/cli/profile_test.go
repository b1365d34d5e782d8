package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// TestProfiles: a profile's flags are used, the environment is stronger, a flag is the strongest.
func TestProfiles(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	at := clitest.FakeBroker(t).Listener.Addr().String()
	nsqctl := func(args ...string) (string, error) { return run(t, time.Minute, args...) }
	_, err := nsqctl("profile", "set", "staging", "--nsqd-http-address", at)
	require.NoError(t, err)
	out, err := nsqctl("profile", "list")
	require.NoError(t, err)
	require.Contains(t, out, "staging  --nsqd-http-address="+at)
	_, err = nsqctl("stats", "--profile", "staging")
	require.NoError(t, err)
	_, err = nsqctl("profile", "use", "staging")
	require.NoError(t, err)
	_, err = nsqctl("stats")
	require.NoError(t, err, "the one in use")

	t.Setenv("LOCKSTEP_NSQD_HTTP_ADDRESS", "127.0.0.1:1")
	_, err = nsqctl("stats")
	require.ErrorContains(t, err, "127.0.0.1:1")
	_, err = nsqctl("stats", "--nsqd-http-address", at)
	require.NoError(t, err)
	require.NoError(t, os.Unsetenv("LOCKSTEP_NSQD_HTTP_ADDRESS"))

	_, err = nsqctl("stats", "--profile", "stagin")
	require.ErrorContains(t, err, `no profile "stagin"`)
	_, err = nsqctl("profile", "set", "staging", "--auth-secret", "x")
	require.ErrorContains(t, err, "does not keep --auth-secret")
	_, err = nsqctl("profile", "delete", "staging")
	require.NoError(t, err)
	out, err = nsqctl("profile", "list", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"current":"","profiles":{}}`, out)
}

// TestProfilesAreNotGuessed: a file with an unknown key is refused, with its name.
func TestProfilesAreNotGuessed(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	path, err := profilePath()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("curent = 'x'"), 0o600))
	_, err = run(t, time.Minute, "stats")
	require.ErrorContains(t, err, `unknown key "curent"`)
}

func TestVariables(t *testing.T) {
	t.Setenv("LOCKSTEP_TLS", "maybe")
	_, err := run(t, time.Minute, "stats")
	require.ErrorContains(t, err, "$LOCKSTEP_TLS")
	require.Equal(t, ExitUsage, ExitCode(t.Context(), err))
}
