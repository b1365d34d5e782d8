package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// AuditFile appends JSON lines to a file that only the broker's user may read. If the file was renamed or removed, the next entry
// creates it again: logrotate needs neither a signal nor copytruncate.
type AuditFile struct {
	path string
	mu   struct {
		sync.Mutex
		file *os.File // nil after a failure, until the next entry
		info os.FileInfo
	}
}

// OpenAuditFile opens or creates the file.
func OpenAuditFile(path string) (*AuditFile, error) {
	a := &AuditFile{path: path}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a, a.openLocked()
}

// Write appends one line. An error does not change the lines before it.
func (a *AuditFile) Write(line []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.followLocked(); err != nil {
		return err
	}
	if _, err := a.mu.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	return nil
}

// followLocked reopens the file if its name belongs to another file, or to none.
func (a *AuditFile) followLocked() error {
	if a.mu.file == nil {
		return a.openLocked()
	}
	now, err := os.Stat(a.path)
	switch {
	case err == nil && os.SameFile(now, a.mu.info):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("audit file: %w", err)
	}
	_ = a.mu.file.Close() // every line was written
	a.mu.file = nil
	return a.openLocked()
}

func (a *AuditFile) openLocked() error {
	file, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
		err = file.Chmod(0o600)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("audit file: %w", err)
	}
	a.mu.file, a.mu.info = file, info
	return nil
}

// Close closes the file.
func (a *AuditFile) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.file == nil {
		return nil
	}
	err := a.mu.file.Close()
	a.mu.file = nil
	return err
}
