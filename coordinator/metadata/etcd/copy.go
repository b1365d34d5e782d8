package etcd

import (
	"io/fs"
	"os"
	"slices"
)

// Copy copies the directory of a member to aside, which must not exist. The member's broker
// must not run. The socket that a killed broker leaves is not copied.
func Copy(aside, dir string) error { return os.CopyFS(aside, withoutSockets{os.DirFS(dir)}) }

// withoutSockets is a file tree without its sockets, devices and links.
type withoutSockets struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (w withoutSockets) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && !e.Type().IsRegular() }), err
}
