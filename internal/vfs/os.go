package vfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The permissions of new files and directories: only the broker's user may read messages.
const (
	privateFile = 0o600
	privateDir  = 0o700
)

// OS is the file system of the operating system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Create(name string) (File, error) { return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC) }

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

func openOS(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, privateFile)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) RemoveAll(name string) error { return os.RemoveAll(name) }

func (osFS) MkdirAll(name string) error { return os.MkdirAll(name, privateDir) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Stat, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Stat{}, err
	}
	return Stat{Size: st.Size(), Dir: st.IsDir()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	available := max(0, int64(st.Bavail)) // negative on FreeBSD while the reserve of root is in use
	return uint64(available) * uint64(st.Bsize), nil
}

// osFile embeds *os.File for ReadAt, WriteAt, Truncate and Close.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("vfs: size: %w", err)
	}
	return st.Size(), nil
}
