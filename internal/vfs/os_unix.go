//go:build unix

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// FreeBytes implements FS.
func (OS) FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	available := max(0, int64(st.Bavail)) // negative on FreeBSD while the reserve of root is in use
	return uint64(available) * uint64(st.Bsize), nil
}
