// Package cursor holds the replicated part of one channel as a data structure: which messages of the
// log are settled, and which of those are deferred, with deadlines and attempts. It notes the changes
// for the next delta. It reads no log, delivers nothing, does no I/O, and does not encode: package
// nsqd serves a channel from a Cursor, package nsqd/state encodes its Progress.
//
// # Invariants
//
//  1. Every sequence below the confirmed sequence is settled. The settled ranges above it are
//     disjoint, in order, and do not touch.
//  2. A deferred message is settled. It either waits for its deadline, or is active: ready, or in
//     flight again.
//  3. The confirmed sequence moves back only by Seek.
//  4. A Progress holds absolute values. A suffix of the deltas of a cursor that is applied again to a
//     newer state ends in that state.
//  5. An unreplicated cursor notes no deferred messages and no ranges for a delta, so that nothing
//     grows that no call takes.
//
// # Goroutines and memory
//
// The types have no lock. The caller holds the channel's lock for every call. The settled ranges
// number at most one more than the messages in flight, if only those leave holes. A deferred message
// takes at most 64 bytes.
package cursor
