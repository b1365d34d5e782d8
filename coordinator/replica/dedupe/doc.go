// Package dedupe recognises repeats: puts that an edge sends again because it lost the answer, by their request ids
// (Requests, AC-7), and messages that a producer publishes again, by their identities (Window, the dedupe window: DW-1
// to DW-5).
//
// Both are derived from the log, on leader and follower alike, so that the next leader recognises them too. They do not
// decide how a repeat is answered (coordinator/replica does), and read no log: the store finds the newest entries at a
// start, and each appended batch adds its own entries.
//
// # Invariants
//
//  1. An entry is here only while its batch is in the log: a truncation removes it.
//  2. The age of a request id is counted by this machine's own clock, from the append here or the first Tick
//     after a start; that of an identity by the clock of the partition (queue.Clock). No wall clock counts.
//  3. No identity within its window is forgotten silently: if one had to be forgotten, ReachesBack returns false until
//     its window has passed.
//  4. A clone shares nothing, not even the broker's Budget; with equal canonical forms two tables recognise the same
//     repeats.
//
// It has no goroutines and no locks: the machine of a partition owns both, and Step alone changes them.
package dedupe
