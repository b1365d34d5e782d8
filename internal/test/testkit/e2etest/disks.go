package e2etest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/loopdisk"
)

// OwnDataPath gives a broker a data path on a disk of its own.
func (c *Cluster) OwnDataPath(b devcluster.Broker, size int64) *loopdisk.Disk {
	c.T.Helper()
	disk, err := loopdisk.Mount(filepath.Join(c.Dir, b.Name+".disk"), b.DataDir, size)
	if err != nil {
		env.Missing(c.T, "a disk of its own", err)
	}
	c.T.Cleanup(func() {
		c.KillProcesses()
		require.NoError(c.T, disk.Close())
	})
	return disk
}

// FillDisk writes a file until a disk has as many bytes free.
func FillDisk(t *testing.T, file string, free int64) {
	t.Helper()
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(filepath.Dir(file), &s))
	f, err := os.Create(file)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, int64(s.Bavail)*s.Bsize-free))
}
