package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// StatusLine shows the reason for a wait: on a terminal one line that changes, elsewhere a line for each change.
type StatusLine struct {
	Out  io.Writer
	last string
}

// Show replaces the line.
func (s *StatusLine) Show(text string) {
	if text == s.last {
		return
	}
	s.last = text
	if !IsTerminal(s.Out) {
		fmt.Fprintln(s.Out, text)
		return
	}
	if size, err := unix.IoctlGetWinsize(int(s.Out.(*os.File).Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 1 {
		if line := []rune(text); len(line) >= int(size.Col) { // a wrapped line cannot be erased
			text = string(line[:size.Col-2]) + "…"
		}
	}
	fmt.Fprint(s.Out, eraseLine, text)
}

// Clear erases the line.
func (s *StatusLine) Clear() {
	if s.last != "" && IsTerminal(s.Out) {
		fmt.Fprint(s.Out, eraseLine)
	}
	s.last = ""
}

// eraseLine moves to the beginning of a terminal's line and erases it.
const eraseLine = "\r\x1b[K"

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := f.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}

const (
	reportAgain   = 5 * time.Second  // the pause between two reports of the same problem
	progressEvery = 10 * time.Second // the pause between two lines of progress where there is no terminal
)

// Reporter prints the problems and the progress of several goroutines, each problem at most every reportAgain.
type Reporter struct {
	mu       sync.Mutex
	line     StatusLine
	reported map[string]time.Time
	shownAt  time.Time
}

// NewReporter returns a reporter that prints to out.
func NewReporter(out io.Writer) *Reporter {
	return &Reporter{line: StatusLine{Out: out}, reported: map[string]time.Time{}}
}

// Report prints a line, which is its own key for rate limiting.
func (r *Reporter) Report(text string) { r.About(text, text) }

// About prints a line about a subject, at most one every reportAgain.
func (r *Reporter) About(subject, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.reported[subject]) >= reportAgain {
		if len(r.reported) > 100 {
			clear(r.reported)
		}
		r.reported[subject] = now
		r.line.Clear()
		fmt.Fprintln(r.line.Out, text)
	}
}

// Progress replaces the line of the progress: on a terminal always, elsewhere every progressEvery.
func (r *Reporter) Progress(text func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if IsTerminal(r.line.Out) || time.Since(r.shownAt) >= progressEvery {
		r.shownAt = time.Now()
		r.line.Show(text())
	}
}

// Clear erases the line of the progress.
func (r *Reporter) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Clear()
}

const SaveEvery = time.Second // the pause between two writes of a state file

// StateFile is the file with the progress of a command.
type StateFile struct {
	name    string
	savedAt time.Time
}

// LoadState reads a state file into v, if it exists. If the content is not valid, the error is "NAME is not ABOUT".
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

// Due reports whether it is time to save the progress.
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

// Commit syncs a temporary file and renames it over a file. If err is set, or a step fails, it removes the temporary
// file and returns the error.
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
