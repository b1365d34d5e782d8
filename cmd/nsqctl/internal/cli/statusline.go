package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// StatusLine shows the reason for a wait: on a terminal one line that changes, elsewhere a
// line for each change.
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
	if columns := terminalColumns(s.Out); columns > 1 {
		if line := []rune(text); len(line) >= columns { // a wrapped line cannot be erased
			text = string(line[:columns-2]) + "…"
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

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := f.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}
