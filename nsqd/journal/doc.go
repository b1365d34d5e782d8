// Package journal is the write-ahead log of a data directory. Submissions of all partitions that arrive during a sync
// become one group: one write, one fdatasync, and one completion for all of them. No timer delays a group.
//
// Submissions are opaque bytes; a replay returns the same bytes. The package never retries a failed write or sync.
//
// # Invariants
//
//  1. Group n+1 is written only after group n is synced (with NoSync: written). So a group that cannot
//     be read although a later header exists was acknowledged: that is corruption. Without a later
//     header it is a torn tail, which was never acknowledged.
//  2. Group numbers rise by one within a run and never restart: the old groups of a reused file have lower numbers than
//     any group that recovery searches for.
//  3. A file is filled with zeros and synced once before its first use. It is reused when a checkpoint
//     has covered all its groups.
//  4. After an error nothing is written. Every later submission is answered with that error.
//  5. Submissions become durable in the order in which they arrived.
//  6. The acknowledgement record names only groups that are durable (with NoSync: written). So a journal that ends
//     below the record has lost acknowledged groups, even if its end looks clean.
//  7. The groups that a replay returned are durable before Open returns, as if they had been
//     acknowledged. So nothing that the caller does because of them can be undone by a power cut.
//
// # Goroutines
//
// Start starts two, and Close waits for both: write writes and syncs the groups and calls durable; prepare creates free
// files in advance. The timer of the acknowledgement record runs syncRecord in its own goroutine, for which Close also
// waits.
//
// # Locks
//
// Journal.writing → Journal.mu. The goroutine that writes a group holds writing over the write, the sync and the call
// of durable. acknowledgements.mu is held over the sync of the record, and Journal.mu may be taken under it (Fail).
//
// # File %016x.log: on disk, by position, append only
//
// Groups at multiples of 512 bytes, little-endian:
//
//	offset size field
//	     0    4 magic "LKJ1"
//	     4    4 length of the body
//	     8    4 crc of the body (CRC-32C)
//	    12    4 header crc of the group before this one
//	    16    8 generation: rises with each file begun, from a random number, so
//	            that no message's body can pass for a group
//	    24    8 group number
//	    32    8 synced: all groups up to this one were durable when this was written
//	    40    4 zero
//	    44    4 header crc (CRC-32C of bytes 0 to 43)
//	    48      body: submissions one after the other
//
// The write of a group is filled with zeros to the end of a 4096-byte page, because a partial write of an uncached page
// would have to read it first. Groups bypass the page cache if the file system supports that.
//
// # File acknowledged: on disk, by position, append only
//
// The acknowledgement record, little-endian:
//
//	offset size field
//	     0    4 magic "LKA1"
//	     4    4 crc (CRC-32C of bytes 8 to 23)
//	     8    8 the highest group whose submissions were answered
//	    16    8 zero
//
// The record lags behind the journal: after a kill by at most the last group, after a power cut by the pause between
// two of its syncs (100 ms, or 128 times the duration of the last one). Two kinds of loss are detected only by the
// other replicas: the loss of just the groups of that pause, in the journal and in the segments; and the loss of
// everything since an earlier time, including the record and the checkpoint.
package journal
