// Package nsqd is the topics and channels of one broker: who gets which message,
// what is in flight, deferred, finished. It knows no network and no cluster: it
// reads a Log, hands changes of its state to a Replicator, and is told what is
// committed and confirmed.
//
// All channels of a partition share its log; a channel is a cursor on it. A
// Partition holds them. On a follower it is only their replicated state (it is
// the replica's register); Lead makes it serve subscribers. Nothing here has a
// goroutine: subscribers pull, and the broker's timer calls Expire at Due and
// Flush while Dirty; a Pace ends the rests of channels that are far behind.
//
// # Invariants
//
//  1. Nothing at or above the committed end, or a paused topic's barrier, is
//     delivered.
//  2. At every moment depth + in flight + deferred + finished = published since
//     the channel began.
//  3. A message is in flight to at most one subscriber of a channel.
//  4. A position moves back only by an explicit seek. An offset beyond the end of
//     a follower's log is kept; a channel it did not know begins where it is told.
//  5. Deltas hold absolute values: a suffix of them applied again on a newer
//     state gives that state again. They leave in the order in which they apply.
//  6. A change of leader does not count as a delivery: what was in flight has the
//     attempts that it had before.
//  7. An ordered channel has at most one message in flight, and none while its
//     last finish is not on all in-sync replicas.
//  8. No wake-up is lost: while something is available and a subscriber has
//     credit that its last Pull could not use, its Wake is signalled, or that of
//     as many others as the messages need.
//  9. No lock is held over Log.Read.
//  10. A channel that rests gains on its producers: half as many puts as it has
//     delivered since its last rest end the rest.
//
// # Memory
//
// Per channel: the messages in flight (no bodies), ranges (at most one more than
// in flight), at most 64 bytes for each message put aside, and at most 512
// messages or about 1 MiB read ahead.
//
// # Channel state, all integers little-endian
//
// Deltas and snapshots lie in journal records and in frames between brokers; those
// carry the checksum. A delta is a version and records:
//
//	offset size field
//	     0    1 version, 1
//	     1      records, to the end:
//	          1 kind: 1 progress, 2 create, 3 delete, 4 seek, 5 pause, 6 barrier, 7 keep,
//	            8 carry, 9 order
//	          1 flags: 1 ordered (create, order), 2 paused (pause, barrier), 4 the
//	            cursor goes back (keep), all in-sync replicas know it (carry)
//	          1 n, length of the channel's name (0: the topic)
//	          n name
//	            kind 1: progress; kind 8: carry; all others:
//	          8 sequence: where it begins (create), the topic's cursor (delete,
//	            keep), where to (seek), the barrier (barrier), 0 (pause, order)
//
// Progress:
//
//	size field
//	   8 confirmed: everything below is settled
//	   4 count of settled ranges above it, each
//	   8   from
//	   8   to (exclusive)
//	   4 count of messages put aside, each
//	   8   sequence << 16 | attempts
//	   8   deadline, unix ns; in the past: due
//	   4 count of messages that were put aside and are finished, each
//	   8   sequence
//
// Carry:
//
//	size field
//	   8 offset of the carry batch
//	   4 count of messages in it, each
//	   8   sequence
//
// Snapshot:
//
//	offset size field
//	     0    1 version, 1
//	     1    1 flags: 2 topic paused
//	     2    8 barrier
//	    10    8 keep: cursor of a topic without channels
//	    18    4 count of channels, each
//	          1   flags: 1 ordered, 2 paused
//	          1   n, length of the name
//	          n   name
//	          8   start
//	              progress
//	          4 count of carried messages (nothing if there are none), each; twice what
//	            is not settled
//	          8   sequence
//	          8   offset of its carry batch
package nsqd
