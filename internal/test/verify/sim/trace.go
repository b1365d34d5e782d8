package sim

import (
	"fmt"
	"strings"
)

// trace condenses everything that happens into one hash, and keeps it readable
// when it is switched on: a failing seed is run a second time for its text.
type trace struct {
	hash  uint64
	on    bool
	lines []line
}

type line struct {
	at   micros
	node string
	part int // -1: concerns all
	text string
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// tailLines is how many lines of a trace a failure has.
const tailLines = 20_000

// linesKept bounds the memory of a readable trace.
const linesKept = 1 << 16

// mix folds values into the hash: FNV-1a over words instead of bytes.
func (t *trace) mix(values ...uint64) {
	for _, v := range values {
		t.hash = (t.hash ^ v) * fnvPrime
		t.hash ^= t.hash >> 32
	}
}

func (t *trace) add(at micros, node string, part int, format string, args ...any) {
	if len(t.lines) >= 2*linesKept {
		t.lines = append(t.lines[:0], t.lines[linesKept:]...)
	}
	t.lines = append(t.lines, line{at, node, part, fmt.Sprintf(format, args...)})
}

// tail renders the last n lines that touch the partition (-1: any).
func (t *trace) tail(part, n int) string {
	var picked []line
	for i := len(t.lines) - 1; i >= 0 && len(picked) < n; i-- {
		if l := t.lines[i]; part < 0 || l.part < 0 || l.part == part {
			picked = append(picked, l)
		}
	}
	var b strings.Builder
	for i := len(picked) - 1; i >= 0; i-- {
		l := picked[i]
		fmt.Fprintf(&b, "%10.3f %-5s p%-2d %s\n", float64(l.at)/float64(millisecond), l.node, l.part, l.text)
	}
	return b.String()
}
