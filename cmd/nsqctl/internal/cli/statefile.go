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
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err == nil {
		return SyncFolder(filepath.Dir(file))
	}
	_ = os.Remove(f.Name())
	return fmt.Errorf("the progress cannot be saved: %w", err)
}

// SyncFolder makes a rename durable.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
