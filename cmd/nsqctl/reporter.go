package main

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

// reporter prints lines of several goroutines, the same one at most every sayAgain.
type reporter struct {
	mu   sync.Mutex
	line statusLine
	said map[string]time.Time
}

// newReporter returns a reporter that prints to out.
func newReporter(out io.Writer) *reporter {
	return &reporter{line: statusLine{out: out}, said: map[string]time.Time{}}
}

// report prints a line that is its own subject.
func (r *reporter) report(text string) { r.about(text, text) }

// about prints a line about a subject, of which it prints at most one every sayAgain.
func (r *reporter) about(subject, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.said[subject]) >= sayAgain {
		if len(r.said) > 100 {
			clear(r.said)
		}
		r.said[subject] = now
		r.line.clear()
		fmt.Fprintln(r.line.out, text)
	}
}

// show replaces the line of the progress.
func (r *reporter) show(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.show(text)
}

// clear erases the line of the progress.
func (r *reporter) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.clear()
}

// due reports whether the progress is to be shown, which was shown last at shownAt: on a terminal always,
// elsewhere every progressEvery.
func (r *reporter) due(shownAt time.Time) bool {
	return isTerminal(r.line.out) || time.Since(shownAt) >= progressEvery
}
