// Package cursor is the replicated part of one channel as a data structure: which messages of the log are settled, and
// which of the settled ones are deferred, with deadlines and attempts. It collects the changes for the next delta. It
// is pure: package nsqd serves a channel from a Cursor, package nsqd/state encodes its Progress.
//
// # Invariants
//
//  1. Every sequence below the confirmed sequence is settled. The settled ranges above it are
//     disjoint, in order, and do not touch.
//  2. A deferred message is settled. It either waits for its deadline, or is active: ready, or in flight again.
//  3. The confirmed sequence moves back only by Seek.
//  4. A Progress has absolute values. A suffix of the deltas of a cursor that is applied again to a
//     newer state ends in that state.
//  5. An unreplicated cursor collects nothing for a delta, so that nothing grows without bound.
//
// # Goroutines and memory
//
// The types have no lock: the caller holds the channel's lock during every call. The number of settled ranges exceeds
// the number of messages in flight by at most one, because only a message in flight leaves a gap. That bounds memory,
// deltas and snapshots. A deferred message takes at most 64 bytes.
package cursor
