//go:build linux

package loopdisk

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestRepairBesideOtherNamespaces: a disk that broke works again, and has what was synced, though
// a mount namespace of another test began with a copy of the mount. Where that test holds the
// copy back, Close says so.
func TestRepairBesideOtherNamespaces(t *testing.T) {
	for _, propagation := range []string{"unchanged", "slave", "private"} {
		t.Run(propagation, func(t *testing.T) {
			dir := t.TempDir()
			at := filepath.Join(dir, "disk")
			disk, err := Mount(filepath.Join(dir, "file"), at, 16<<20)
			if err != nil {
				env.Missing(t, "root, for a disk of its own", err)
			}
			t.Cleanup(func() { _ = disk.Close() }) // for a test that failed
			file := filepath.Join(at, "kept")
			require.NoError(t, write(file))
			end := namespace(t, propagation)
			require.NoError(t, disk.Break())
			require.Error(t, write(file))

			if propagation == "private" {
				defer func(d time.Duration) { unmounted = d }(unmounted)
				unmounted = 100 * time.Millisecond // it ends however long Close waits
				require.ErrorContains(t, disk.Close(), "another mount namespace")
				end()
				return
			}
			require.NoError(t, disk.Repair())
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, "kept", string(data))
			require.NoError(t, write(file))
			require.NoError(t, disk.Close())
		})
	}
}

// namespace starts a process with a copy of all mounts.
func namespace(t *testing.T, propagation string) (end func()) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", propagation, "sh", "-c", "echo here; exec cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "here\n", line)
	end = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	return end
}

// write writes a file and syncs it.
func write(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err = f.WriteString("kept"); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
