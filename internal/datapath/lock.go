// Package datapath keeps a data path for one process at a time: its broker, or the
// command that repairs it. It knows nothing of what lies there.
//
//  1. The lock goes with the process that holds it, however that ends; the file
//     stays.
package datapath

import (
	"errors"
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
