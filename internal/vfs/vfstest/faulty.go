package vfstest

import (
	"io"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Call is the kind of a call that Faulty shows to its hook.
type Call uint8

// The calls that change data or may fail because of the disk.
const (
	CallCreate Call = iota + 1
	CallOpen
	CallRename
	CallRemove
	CallMkdir
	CallList
	CallSyncDir
	CallRead
	CallWrite
	CallTruncate
	CallSync
	CallSyncDisk
)

// Syncs reports whether the call makes something durable.
func (c Call) Syncs() bool { return c == CallSync || c == CallSyncDir || c == CallSyncDisk }

// Op is one call before it is executed.
type Op struct {
	Call Call
	Name string
}

// Hook decides about each call. With a nil error the call is executed. With ErrShort, a write
// writes half of its bytes before it returns the error.
type Hook func(Op) error

// ErrShort makes Faulty write half of the bytes.
var ErrShort = io.ErrShortWrite

// Faulty passes calls to an FS unless a hook returns an error. Wrap makes it.
type Faulty struct {
	fs   vfs.FS
	hook Hook
}

var _ vfs.FS = (*Faulty)(nil)

// Wrap passes each call to the hook before it passes it to fs. The hook may be called from any goroutine.
func Wrap(fs vfs.FS, hook Hook) *Faulty { return &Faulty{fs: fs, hook: hook} }

// Create implements FS.
func (f *Faulty) Create(name string) (vfs.File, error) {
	return f.open(CallCreate, name, f.fs.Create)
}

// Open implements FS.
func (f *Faulty) Open(name string) (vfs.File, error) { return f.open(CallOpen, name, f.fs.Open) }

func (f *Faulty) open(c Call, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := f.hook(Op{c, name}); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, name: name, hook: f.hook}, nil
}

// Rename implements FS.
func (f *Faulty) Rename(oldName, newName string) error {
	if err := f.hook(Op{CallRename, oldName}); err != nil {
		return err
	}
	return f.fs.Rename(oldName, newName)
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	if err := f.hook(Op{CallRemove, name}); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

// RemoveAll implements FS.
func (f *Faulty) RemoveAll(name string) error {
	if err := f.hook(Op{CallRemove, name}); err != nil {
		return err
	}
	return f.fs.RemoveAll(name)
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(name string) error {
	if err := f.hook(Op{CallMkdir, name}); err != nil {
		return err
	}
	return f.fs.MkdirAll(name)
}

// List implements FS.
func (f *Faulty) List(dir string) ([]string, error) {
	if err := f.hook(Op{CallList, dir}); err != nil {
		return nil, err
	}
	return f.fs.List(dir)
}

// Stat implements FS.
func (f *Faulty) Stat(name string) (vfs.Stat, error) { return f.fs.Stat(name) }

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	if err := f.hook(Op{CallSyncDir, dir}); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

// FreeBytes implements FS.
func (f *Faulty) FreeBytes(dir string) (uint64, error) { return f.fs.FreeBytes(dir) }

// OpenDisk implements FS.
func (f *Faulty) OpenDisk(dir string) (vfs.Disk, error) {
	d, err := f.fs.OpenDisk(dir)
	if err != nil {
		return nil, err
	}
	return &faultyDisk{Disk: d, name: dir, hook: f.hook}, nil
}

type faultyDisk struct {
	vfs.Disk
	name string
	hook Hook
}

func (d *faultyDisk) Sync() error {
	if err := d.hook(Op{CallSyncDisk, d.name}); err != nil {
		return err
	}
	return d.Disk.Sync()
}

type faultyFile struct {
	vfs.File
	name string
	hook Hook
}

func (f *faultyFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.hook(Op{CallRead, f.name}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.hook(Op{CallWrite, f.name}); err != nil {
		n := 0
		if err == ErrShort {
			n = f.short(b, off)
		}
		return n, err
	}
	return f.File.WriteAt(b, off)
}

// short writes about half of b. A direct write ends at the end of a sector.
func (f *faultyFile) short(b []byte, off int64) int {
	n, err := f.File.WriteAt(b[:len(b)/2], off)
	if err != nil {
		n, _ = f.File.WriteAt(b[:len(b)/2/vfs.SectorBytes*vfs.SectorBytes], off)
	}
	return n
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.hook(Op{CallTruncate, f.name}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.hook(Op{CallSync, f.name}); err != nil {
		return err
	}
	return f.File.Sync()
}
