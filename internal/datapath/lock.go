// Package datapath keeps a data path for one process at a time: its broker, or the
// command that repairs it. It knows nothing of what lies there.
//
//  1. The lock goes with the process that holds it, however that ends; the file
//     stays.
//  2. Whoever removes or replaces what a process has open there takes the lock from
//     it, too: the next one locks another file. Holding notices.
package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// ErrInUse means that another process holds the lock.
var ErrInUse = errors.New("another process uses it")

// Lock takes the lock of a data path that is there, or fails: ErrInUse, or an error
// of the file system.
func Lock(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, "nsqd.lock"))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = ErrInUse
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// ErrReplaced means that what a process works on is no longer what lies at its data
// path: all that it writes goes with it.
var ErrReplaced = errors.New("the data path was removed, or another one put in its place, while this process used it")

// Holding is what a process has open at the data path that it has locked.
type Holding struct {
	dir   string
	infos map[string]fs.FileInfo
}

// Hold notes the lock and what else lies there by these names.
func Hold(lock *flock.Flock, names ...string) (Holding, error) {
	h := Holding{dir: filepath.Dir(lock.Path()), infos: map[string]fs.FileInfo{}}
	info, err := lock.Stat()
	h.infos[filepath.Base(lock.Path())] = info
	for _, name := range names {
		if err == nil {
			h.infos[name], err = os.Stat(filepath.Join(h.dir, name))
		}
	}
	return h, err
}

// Check gives ErrReplaced if any of it is gone, or is another one.
func (h Holding) Check() error {
	for name, info := range h.infos {
		now, err := os.Stat(filepath.Join(h.dir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
			return fmt.Errorf("%w: %s", ErrReplaced, filepath.Join(h.dir, name))
		}
	}
	return nil
}
