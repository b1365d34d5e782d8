package canon

import (
	"encoding/binary"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Writer appends the canonical form to B.
type Writer struct {
	B     []byte
	NowMS int64 // ages are counted up to here
}

// Num writes numbers.
func (w *Writer) Num(values ...uint64) {
	for _, v := range values {
		w.B = binary.AppendUvarint(w.B, v)
	}
}

// Flags writes at most eight flags as one byte.
func (w *Writer) Flags(values ...bool) {
	x := byte(0)
	for i, v := range values {
		if v {
			x |= 1 << i
		}
	}
	w.B = append(w.B, x)
}

// Pos writes positions in a log.
func (w *Writer) Pos(values ...ident.Position) {
	for _, p := range values {
		w.Num(uint64(p.Offset), uint64(p.Sequence))
	}
}

// Node writes the name of a broker.
func (w *Writer) Node(n ident.Node) {
	w.Num(uint64(len(n)))
	w.B = append(w.B, n...)
}

// Age writes how long ago a moment was, up to the deadline that is compared with it; a
// moment in the future has a negative age.
func (w *Writer) Age(ms, deadlineMS int64) {
	w.B = binary.AppendVarint(w.B, min(w.NowMS-ms, deadlineMS+1))
}
