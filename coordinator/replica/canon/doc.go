// Package canon writes the canonical form of a state machine: bytes that are equal for two states that do the
// same for ever. The model (internal/verify/model) tells visited states apart by them.
//
// A Writer appends numbers, flags, positions and ages. Which fields a form has is decided by the type that
// they belong to: coordinator/replica and its repeats.
//
// # Invariants
//
//  1. A moment is written as its age only, so that the same state at another time has the same form.
//  2. Ages beyond the deadline that is compared with them are equal.
//  3. A form that was appended never changes.
//
// It has no goroutines and no state but the bytes.
package canon
