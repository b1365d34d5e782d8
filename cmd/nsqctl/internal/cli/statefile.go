package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// SaveEvery is the pause between two writes of a state file.
const SaveEvery = time.Second

// StateFile is the file with the progress of a command.
type StateFile struct {
	name    string
	savedAt time.Time
}

// LoadState reads a state file into v, unless there is none yet. valid reports whether v is a state of the command;
// otherwise the error is about.
func LoadState(name string, v any, valid func() bool, about string) (StateFile, error) {
	f := StateFile{name: name}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if json.Unmarshal(text, v) != nil || !valid() {
		return f, fmt.Errorf("%s is not %s", name, about)
	}
	return f, nil
}

// Due reports whether the progress is to be saved.
func (f *StateFile) Due() bool { return time.Since(f.savedAt) >= SaveEvery }

// Save replaces the file, synced: after a crash it has the old or the new content.
func (f *StateFile) Save(v any) error {
	f.savedAt = time.Now()
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	to, err := os.CreateTemp(filepath.Dir(f.name), filepath.Base(f.name)+".*")
	if err != nil {
		return fmt.Errorf("the progress cannot be saved (--state names another file): %w", err)
	}
	_, err = to.Write(text)
	if err = Commit(to, f.name, err); err != nil {
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
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // makes the rename durable
}
