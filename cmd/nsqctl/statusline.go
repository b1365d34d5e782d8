package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// statusLine shows the reason for a wait: on a terminal one line that changes, elsewhere a
// line for each change.
type statusLine struct {
	out  io.Writer
	last string
}

// show replaces the line.
func (s *statusLine) show(text string) {
	if text == s.last {
		return
	}
	s.last = text
	if !isTerminal(s.out) {
		fmt.Fprintln(s.out, text)
		return
	}
	if columns := terminalColumns(s.out); columns > 1 {
		if line := []rune(text); len(line) >= columns { // a wrapped line cannot be erased
			text = string(line[:columns-2]) + "…"
		}
	}
	fmt.Fprint(s.out, eraseLine, text)
}

// clear erases the line.
func (s *statusLine) clear() {
	if s.last != "" && isTerminal(s.out) {
		fmt.Fprint(s.out, eraseLine)
	}
	s.last = ""
}

// eraseLine moves to the beginning of a terminal's line and erases it.
const eraseLine = "\r\x1b[K"

// terminalColumns returns the width of the terminal, 0 if it is unknown.
func terminalColumns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := f.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}
