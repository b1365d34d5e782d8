package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	smallDisk   = 384 << 20
	diskReserve = 64 << 20 // of the broker on the small disk
	filler      = "filler" // what takes the room
)

// shrinkDisk gives a broker's data a small file system; it goes with the mount
// namespace, at the latest.
func (b *broker) shrinkDisk(t *testing.T) {
	require.NoError(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""))
	require.NoError(t, syscall.Mount("chaos", b.dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)))
	t.Cleanup(func() { _ = syscall.Unmount(b.dir, syscall.MNT_DETACH) })
	b.command = append(b.command, fmt.Sprintf("--min-free-disk-bytes=%d", diskReserve))
}

// fill leaves so many bytes on the small disk; the filler's removal heals it.
func (r *round) fill(leave uint64) func() {
	b, path, end := r.small, filepath.Join(r.small.dir, filler), r.harm(r.small)
	var fs syscall.Statfs_t
	require.NoError(r.t, syscall.Statfs(b.dir, &fs))
	if free := fs.Bavail * uint64(fs.Bsize); free > leave {
		f, err := os.Create(path)
		require.NoError(r.t, err)
		err = syscall.Fallocate(int(f.Fd()), 0, 0, int64(free-leave))
		if err != nil && !errors.Is(err, syscall.ENOSPC) { // the broker was faster: full it is
			require.NoError(r.t, err)
		}
		require.NoError(r.t, f.Close())
	}
	return func() {
		_ = os.Remove(path)
		select {
		case <-b.gone: // it ended for lack of space, and is started again after the other fault
			r.fell(b)
		default:
		}
		end()
	}
}

// diskFull leaves no space: a broker that cannot write may end, and is started again.
func (r *round) diskFull() func() {
	r.small.full = true
	return r.fill(0)
}

// clear empties a broker's disk, which may be a mount.
func (b *broker) clear() error {
	entries, err := os.ReadDir(b.dir)
	for _, e := range entries {
		if err == nil {
			err = os.RemoveAll(filepath.Join(b.dir, e.Name()))
		}
	}
	return err
}
