package dedupe

import (
	"encoding/binary"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// CanonicalWriter appends the canonical form of a state machine to B, by which the model distinguishes visited states.
// A moment is written as its age; ages beyond the deadline that is compared with them are equal.
type CanonicalWriter struct {
	B     []byte
	NowMS int64 // the present, from which ages are computed
}

// Num writes numbers.
func (w *CanonicalWriter) Num(values ...uint64) {
	for _, v := range values {
		w.B = binary.AppendUvarint(w.B, v)
	}
}

// Flags writes at most eight flags as one byte.
func (w *CanonicalWriter) Flags(values ...bool) {
	x := byte(0)
	for i, v := range values {
		if v {
			x |= 1 << i
		}
	}
	w.B = append(w.B, x)
}

// Pos writes positions in a log.
func (w *CanonicalWriter) Pos(values ...ident.Position) {
	for _, p := range values {
		w.Num(uint64(p.Offset), uint64(p.Sequence))
	}
}

// Node writes the name of a broker.
func (w *CanonicalWriter) Node(n ident.Node) {
	w.Num(uint64(len(n)))
	w.B = append(w.B, n...)
}

// Age writes how long ago a moment was, up to the deadline that is compared with it; the future has a negative age.
func (w *CanonicalWriter) Age(ms, deadlineMS int64) {
	w.B = binary.AppendVarint(w.B, min(w.NowMS-ms, deadlineMS+1))
}
