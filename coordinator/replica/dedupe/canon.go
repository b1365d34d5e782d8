package dedupe

import (
	"encoding/binary"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// A CanonicalWriter writes the canonical form of a state machine: bytes that are equal for two states that do the
// same for ever. The model (internal/test/verify/model) tells visited states apart by them.
//
// A CanonicalWriter appends numbers, flags, positions and ages. Which fields a form has is decided by the type that
// they belong to: coordinator/replica and its repeats.
//
// Invariants
//
//  1. A moment is written as its age only, so that the same state at another time has the same form.
//  2. Ages beyond the deadline that is compared with them are equal.
//  3. A form that was appended never changes.
//
// It has no goroutines and no state but the bytes.

// CanonicalWriter appends the canonical form to B.
type CanonicalWriter struct {
	B     []byte
	NowMS int64 // ages are counted up to here
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

// Age writes how long ago a moment was, up to the deadline that is compared with it; a
// moment in the future has a negative age.
func (w *CanonicalWriter) Age(ms, deadlineMS int64) {
	w.B = binary.AppendVarint(w.B, min(w.NowMS-ms, deadlineMS+1))
}
