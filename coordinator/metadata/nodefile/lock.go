package nodefile

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

// Lock locks an existing data path. Errors: ErrInUse, or an error of the file system.
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

// ErrReplaced means that the data path no longer contains the files that this process has open. All that it writes is lost
// with them.
var ErrReplaced = errors.New("the data path was removed, or another one put in its place, while this process used it")

// Holding is the set of files and folders that a process has open at its locked data path.
type Holding struct {
	dir   string
	infos map[string]fs.FileInfo
}

// Hold records the lock and the named entries of the data path.
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

// Check returns ErrReplaced if an entry is gone or was replaced.
func (h Holding) Check() error {
	for name, info := range h.infos {
		now, err := os.Stat(filepath.Join(h.dir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
			return fmt.Errorf("%w: %s", ErrReplaced, filepath.Join(h.dir, name))
		}
	}
	return nil
}
