// Package meter measures what the channels of a broker do: the latencies from publish to finish, and the counts
// of requeues, timeouts and filtered messages. They are shown and decide nothing.
//
// It does not know partitions or channels, but by the names under which their counts stand.
//
// # Invariants
//
//  1. Counts never fall while their channel exists, whichever broker leads and however often the Channel is
//     made anew from a snapshot.
//  2. A Latency shows no value that is older than its window.
//
// # Locks and goroutines
//
// It starts no goroutine. Works has a lock, which is a leaf; Verbs are atomic. A Latency is guarded by the lock
// of its channel, a Merged belongs to one goroutine.
package meter
