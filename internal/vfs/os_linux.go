//go:build linux && !portable

package vfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sync replaces os.File.Sync, which is an fsync: times of access and change need not be durable.
func (f osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == unix.EINTR { // the call was interrupted before it began, so the sync did not fail
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

func (f osFile) StartWriteback(off, n int64) {
	// A hint: without support of the kernel or the file system nothing is lost.
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func (f osFile) DropCache() {
	// A hint: without support of the file system, reads come from the page cache. The range is the whole file, because
	// the kernel does not drop pages that extend beyond a range, perhaps by megabytes.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// Direct implements File. The page cache stays in use if the kernel or the file system does not
// report its alignment, or requires more than sectors.
func (f osFile) Direct() bool {
	fd := int(f.Fd())
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || !sectors(st.Dio_offset_align) || !sectors(st.Dio_mem_align) {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	return err == nil
}

// sectors reports whether a multiple of SectorBytes satisfies an alignment; 0 means that direct I/O is not supported.
func sectors(align uint32) bool { return align > 0 && SectorBytes%align == 0 }

// OpenDisk implements FS with syncfs. Before version 5.8 the kernel does not report failed writes to it. Elsewhere than
// on these file systems it may return before the disk has everything: FUSE need not pass it on, and an overlay need not
// sync the file system below.
func (osFS) OpenDisk(dir string) (Disk, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return nil, errors.Join(&os.PathError{Op: "fstatfs", Path: dir, Err: err}, d.Close())
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		if reportsFailedWrites() {
			return osDisk{d}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("vfs: syncfs of %s: %w", dir, errors.ErrUnsupported), d.Close())
}

// reportsFailedWrites reports whether the kernel is at least 5.8.
func reportsFailedWrites() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor >= 8)
}

// osDisk is a directory that was open before the writes whose errors Sync reports.
type osDisk struct{ *os.File }

func (d osDisk) Sync() error {
	for {
		err := unix.Syncfs(int(d.Fd()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "syncfs", Path: d.Name(), Err: err}
		}
		return nil
	}
}
