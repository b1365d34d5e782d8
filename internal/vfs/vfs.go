// Package vfs is the file access of Lockstep: the few calls that the storage needs, behind interfaces, so that tests
// can simulate power cuts and failing calls (package vfstest). OS is the operating system: one call is one system call.
// Cache limits the number of open files.
//
// # Invariants
//
//  1. The content at a File.Sync that returned without an error survives a power cut. Later writes may survive
//     completely, in part (sectors of 512 bytes), or not at all.
//  2. A change of a directory entry (creation, removal, rename) survives once SyncDir of that directory has returned. A
//     rename is atomic even before that.
//  3. No call is retried after an error, because the kernel may have dropped the pages. After a failed Disk.Sync each
//     File.Sync still reports the errors of its own file.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"unsafe"
)

// SectorBytes is the unit in which a power cut tears a write.
const SectorBytes = 512

// ErrNotExist means that a name does not exist.
var ErrNotExist = fs.ErrNotExist

// FS is a file system. Names are slash-separated paths.
type FS interface {
	// Create creates an empty file for reading and writing, or empties the existing one.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Rename replaces the new name atomically. It is durable after SyncDir of both directories.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree. A tree that does not exist is not an error.
	RemoveAll(name string) error
	// MkdirAll creates a directory and its parents.
	MkdirAll(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Stat, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(dir string) error
	// FreeBytes is the number of bytes that an unprivileged process may still write below dir.
	FreeBytes(dir string) (uint64, error)
	// OpenDisk opens the file system that contains dir, to make many files durable with one call. The error wraps
	// errors.ErrUnsupported if the file system does not guarantee that.
	OpenDisk(dir string) (Disk, error)
}

// Disk is an open file system.
type Disk interface {
	// Sync makes everything durable that was written below the directory before the call: contents, sizes and
	// directory entries. It also writes what other processes have written to the file system, and fails if any such
	// write has failed since the last call, or since OpenDisk.
	Sync() error
	io.Closer
}

// File is an open file. ReadAt and WriteAt may be called from any goroutine.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate cuts or extends the file. The new bytes are zeros.
	Truncate(size int64) error
	// Sync makes the content and the size durable (fdatasync).
	Sync() error
	// StartWriteback asks the kernel to begin writing a range, without waiting and without any
	// guarantee, so that a later Sync has less to do.
	StartWriteback(off, n int64)
	// Direct lets later writes and reads bypass the page cache, for data that is written once and read only after a
	// crash, and for reads that must see the content of the disk. True: reads and writes must begin and end at
	// multiples of SectorBytes and use Aligned memory. False: nothing changed.
	Direct() bool
	// DropCache asks the kernel, without any guarantee, to drop written pages of the file from its cache, so that the
	// next read reaches the disk.
	DropCache()
	// Size is the current size in bytes.
	Size() (int64, error)
}

// Stat is the result of FS.Stat.
type Stat struct {
	Size int64
	Dir  bool
}

// MakeDir creates a directory and its parents, and makes the entries of all new ones durable.
func MakeDir(on FS, dir string) error {
	var parents []string
	for d := path.Clean(dir); ; d = path.Dir(d) {
		if _, err := on.Stat(d); err == nil || d == path.Dir(d) {
			break
		}
		parents = append(parents, path.Dir(d))
	}
	if err := on.MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range parents {
		if err := on.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// ReadFile reads a whole file. The error wraps ErrNotExist if the file does not exist.
func ReadFile(on FS, name string) ([]byte, error) {
	f, err := on.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// ReadDisk reads n bytes of a file from the disk: bypassing the page cache if the file system supports that, otherwise
// after asking the kernel to drop the file from its cache. Unsynced bytes are written first, or may be read from
// memory. Caches of the disk itself, of a controller or of a host are not bypassed. Error: io.ErrUnexpectedEOF if the
// file is shorter, or an error of the file system.
//
// It opens the file separately, because a handle that reads past the page cache also writes past it.
func ReadDisk(on FS, name string, off, n int64) ([]byte, error) {
	f, err := on.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := readDisk(f, off, n)
	return b, errors.Join(err, f.Close())
}

func readDisk(f File, off, n int64) ([]byte, error) {
	from, to := off, off+n
	if f.Direct() {
		from, to = off/SectorBytes*SectorBytes, (to+SectorBytes-1)/SectorBytes*SectorBytes
	} else {
		f.DropCache()
	}
	b := alignedBuffer(int(to - from))
	read, err := f.ReadAt(b, from)
	if read = min(read-int(off-from), int(n)); read == int(n) {
		return b[off-from:][:n:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// Aligned returns b at an address where direct writes may begin: b itself if its address is a multiple of SectorBytes
// (as in a large allocation), otherwise a copy.
func Aligned(b []byte) []byte {
	if offset(b) == 0 {
		return b
	}
	buffer := alignedBuffer(len(b))
	return buffer[:copy(buffer, b)]
}

// alignedBuffer allocates n bytes at an address where direct reads and writes may begin.
func alignedBuffer(n int) []byte {
	buffer := make([]byte, n+SectorBytes)
	at := (SectorBytes - offset(buffer)) % SectorBytes
	return buffer[at:][:n:n]
}

// offset is the distance of b's address from the beginning of its sector, in bytes.
func offset(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % SectorBytes) }
