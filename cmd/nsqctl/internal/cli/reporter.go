package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// sayAgain is the pause between two reports of the same problem.
	sayAgain = 5 * time.Second
	// progressEvery is the pause between two lines of progress where there is no terminal.
	progressEvery = 10 * time.Second
)

// Reporter prints lines of several goroutines, the same one at most every sayAgain.
type Reporter struct {
	mu   sync.Mutex
	line StatusLine
	said map[string]time.Time
}

// NewReporter returns a reporter that prints to out.
func NewReporter(out io.Writer) *Reporter {
	return &Reporter{line: StatusLine{Out: out}, said: map[string]time.Time{}}
}

// Report prints a line that is its own subject.
func (r *Reporter) Report(text string) { r.About(text, text) }

// About prints a line about a subject, of which it prints at most one every sayAgain.
func (r *Reporter) About(subject, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.said[subject]) >= sayAgain {
		if len(r.said) > 100 {
			clear(r.said)
		}
		r.said[subject] = now
		r.line.Clear()
		fmt.Fprintln(r.line.Out, text)
	}
}

// Show replaces the line of the progress.
func (r *Reporter) Show(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Show(text)
}

// Clear erases the line of the progress.
func (r *Reporter) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Clear()
}

// Due reports whether the progress is to be shown, which was shown last at shownAt: on a terminal always,
// elsewhere every progressEvery.
func (r *Reporter) Due(shownAt time.Time) bool {
	return IsTerminal(r.line.Out) || time.Since(shownAt) >= progressEvery
}
