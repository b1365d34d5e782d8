// Package vfs is the file access of Lockstep: the few calls the storage needs,
// behind interfaces, so that tests can take the power away.
//
// It has three implementations: OS is the operating system; Memory keeps
// everything in memory and knows what a power cut would leave of it; Faulty
// wraps either and lets a test see or fail any call.
//
// It does not buffer, lock, retry or interpret: one call is one system call.
//
// # Invariants
//
//  1. What File.Sync returned for without an error survives a power cut; what
//     was written later may survive whole, in part (sectors of 512 bytes), or
//     not at all.
//  2. An entry of a directory (a creation, removal or rename) survives once
//     SyncDir of that directory has returned; a rename is atomic before too.
//  3. No call is retried after an error: the kernel may have dropped the pages.
package vfs

import (
	"io"
	"io/fs"
	"path"
)

// SectorBytes is the unit in which a disk tears a write at a power cut.
const SectorBytes = 512

// ErrNotExist is returned for a name that is not there.
var ErrNotExist = fs.ErrNotExist

// FS is a file system. Names are slash-separated paths.
type FS interface {
	// Create makes an empty file for reading and writing, or empties the one
	// that is there.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Rename replaces the new name atomically; durable after SyncDir of both
	// directories.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; a missing one is no error.
	RemoveAll(name string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(name string) error
	// List gives the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Stat, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(dir string) error
	// FreeBytes is what an unprivileged process may still write below dir.
	FreeBytes(dir string) (uint64, error)
}

// File is an open file. ReadAt and WriteAt may be called from any goroutine.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate cuts or extends the file; what is added reads as zeroes.
	Truncate(size int64) error
	// Sync makes the content and the size durable (fdatasync).
	Sync() error
	// StartWriteback asks the kernel to begin writing a range, without waiting
	// and without any promise: a later Sync then has less to do.
	StartWriteback(off, n int64)
	// Direct asks that later writes leave the page cache out, as is best for
	// what is written once and read after a crash alone. True: they must begin
	// and end at multiples of SectorBytes, and be Aligned. False: nothing changed.
	Direct() bool
	// Size is the present size in bytes.
	Size() (int64, error)
}

// Stat is what Stat tells.
type Stat struct {
	Size int64
	Dir  bool
}

// MakeDir makes a directory and its parents, and the entries of all that were not
// there durable.
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
