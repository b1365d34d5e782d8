// Package relocations holds where messages lie that were copied to the end of the log before retention removed
// the original. The map is part of the replicated state of a partition.
//
// It does not decide which messages are relocated or still needed (nsqd and retention do). It reads the messages
// from the log that the caller names.
//
// # Invariants
//
//  1. Deltas are idempotent: applied again, also to a newer state, they change nothing. A batch at a higher
//     offset replaces an earlier one, never the other way.
//  2. A batch is settled only when every in-sync replica has a durable record that all of them have it. The place
//     before it, the original or the settled batch, may go from then on, and not before.
//
// It starts no goroutine. Its lock is a leaf.
package relocations
