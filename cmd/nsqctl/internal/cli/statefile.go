package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SaveEvery is the pause between two writes of a state file.
const SaveEvery = time.Second

// ReplaceFile replaces a file, synced: after a crash it has the old or the new content.
func ReplaceFile(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("the progress cannot be saved (--state names another file): %w", err)
	}
	_, err = f.Write(content)
	if err = Commit(f, file, err); err != nil {
		return fmt.Errorf("the progress cannot be saved: %w", err)
	}
	return nil
}

// Commit puts a temporary file in the place of a file, synced. After an error of the
// caller, or its own, it removes the temporary file and returns the error.
func Commit(f *os.File, file string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err == nil {
		return syncFolder(filepath.Dir(file))
	}
	_ = os.Remove(f.Name())
	return err
}

// syncFolder makes a rename durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
