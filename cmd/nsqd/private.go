package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

// tightenDataPath takes the rights of other users of the machine on the data path away: earlier
// builds made files that everybody could read. The directory itself suffices to keep others
// out; the files are changed too, for a copy of them. Nothing is followed out of the data path.
func (p *process) tightenDataPath() error {
	st, err := os.Stat(p.dir)
	if err != nil {
		return fmt.Errorf("data path: %w", err)
	}
	if st.Mode().Perm()&0o077 == 0 {
		return nil
	}
	changed, failed := tighten(p.dir)
	if p.o.DataPath != "" { // a working directory may be somebody's
		failed = errors.Join(failed, os.Chmod(p.dir, 0o700))
	}
	if failed != nil { // such as a volume whose root directory belongs to another user
		p.log.WithError(failed).Warn("cannot take all of the data path from other users of this machine")
	}
	if changed > 0 {
		p.log.WithFields(logrus.Fields{"directory": p.dir, "files": changed}).Warn("other users of this machine could read files of the data path; from now on they cannot")
	}
	return nil
}

// ours are the entries of a data path. In a working directory there may be others, which are not
// changed.
var ours = []string{"journal", "topics", "trash", "etcd", "nsqd.lock", "node.json", "node.mark", "store.json", access.FirstFile, console.HistoryFile}

// tighten takes the rights of other users on the broker's files, and counts the changed ones.
func tighten(dir string) (changed int, failed error) {
	for _, name := range ours {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode().Perm()&0o077 == 0 {
				return err
			}
			changed++
			return os.Chmod(path, info.Mode().Perm()&0o700)
		})
		failed = errors.Join(failed, err)
	}
	return changed, failed
}
