package certcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	forAll   = 0o644
	forOwner = 0o600
	folder   = 0o700
)

// file is one to be written.
type file struct {
	path string
	text []byte
	mode fs.FileMode
}

// write makes new files, and the folders that are named. If one cannot be made, it removes the others again.
func write(folders []string, files []file) (err error) {
	var made []string
	defer func() {
		for i := len(made) - 1; i >= 0 && err != nil; i-- {
			err = errors.Join(err, os.Remove(made[i]))
		}
	}()
	for _, dir := range folders {
		if err := os.Mkdir(dir, folder); err != nil {
			return kept(dir, err)
		}
		made = append(made, dir)
	}
	for _, f := range files {
		to, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if err != nil {
			return kept(f.path, err)
		}
		made = append(made, f.path)
		_, err = to.Write(f.text)
		if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
			return err
		}
	}
	return nil
}

// kept explains why nothing was written.
func kept(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and nothing is replaced: move it away, or give another folder (now %s)", path, filepath.Dir(path))
	}
	return err
}
