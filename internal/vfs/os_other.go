// With the build tag portable, Linux uses, and therefore tests, the code of the other systems.

//go:build !linux || portable

package vfs

import (
	"errors"
	"fmt"
)

// Sync is the strongest sync of the system. os.File.Sync calls F_FULLFSYNC on darwin, where an
// fsync leaves the data in the drive's cache, and fsync elsewhere.
func (f osFile) Sync() error { return f.File.Sync() }

// StartWriteback does nothing: only Linux has the hint.
func (f osFile) StartWriteback(int64, int64) {}

// Direct leaves the page cache in use: the call differs between systems.
func (f osFile) Direct() bool { return false }

// DropCache leaves the page cache as it is, so ReadDisk may read from memory on these systems.
func (f osFile) DropCache() {}

// OpenDisk implements FS: only Linux has a sync of one file system that reports errors.
func (osFS) OpenDisk(dir string) (Disk, error) {
	return nil, fmt.Errorf("vfs: sync of the file system of %s: %w", dir, errors.ErrUnsupported)
}
