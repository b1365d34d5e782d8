// Package state encodes the replicated state of the channels of a partition: deltas with changes, and snapshots of the
// whole state. Package nsqd decides on the changes and applies them. The format has no checksum, because the enclosing
// journal records and frames have one.
//
// # Invariants
//
//  1. One state has one encoding: a delta or snapshot that decodes encodes to the same bytes.
//  2. A delta or snapshot that violates the format is refused as a whole, with errMalformed.
//  3. A count allocates at most as many bytes as follow.
//
// Any goroutine may call the functions.
//
// # Channel state: on disk and between brokers, by position, append only
//
// All integers are little-endian. Deltas and snapshots are in journal records and in frames between
// brokers. A delta is a version byte and records:
//
//	offset size field
//	     0    1 version, 1
//	     1      records, to the end:
//	          1 kind: 1 progress, 2 create, 3 delete, 4 seek, 5 pause, 6 barrier, 7 keep,
//	            8 relocate, 9 order
//	          1 flags: 1 ordered (create, order), 2 paused (pause, barrier), 4 the cursor
//	            moves back (keep), all in-sync replicas have the relocation (relocate),
//	            8 the log ends at the offset (relocate)
//	          1 n, length of the channel's name (0: the topic)
//	          n name
//	            kind 1: progress; kind 8: relocation; all others:
//	          8 sequence: where the channel begins (create), the topic's cursor (delete,
//	            keep), the new cursor (seek), the barrier (barrier), 0 (pause, order)
//	          8 id of the channel (create alone)
//
// Progress:
//
//	size field
//	   8 confirmed: every sequence below it is settled
//	   4 count of settled ranges above it, each
//	   8   from
//	   8   to (exclusive)
//	   4 count of deferred messages, each
//	   8   sequence << 16 | attempts
//	   8   deadline, unix ns; in the past: due
//	   4 count of messages that were deferred and are finished, each
//	   8   sequence
//
// Relocation:
//
//	size field
//	   8 offset of the relocation batch
//	   4 count of messages in the batch, each
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
//	          8   id of the channel
//	          8   start
//	              progress
//	          4 count of relocated messages (absent if there are none), each
//	          8   sequence
//	          8   offset of the newest relocation batch that is settled, 0: none
//	          8   offset of the newest relocation batch
package state
