// Package journal is the one write-ahead log of a data directory. Submissions of
// all partitions that arrive while a sync runs become one group: one write, one
// fdatasync, and all of its waiters are told together. There is no timer.
//
// The package does not know what a submission means: bytes go in, the same bytes
// come out of a replay. It never retries a failed write or sync.
//
// # Invariants
//
//  1. Group n+1 is written only after group n is synced (or written, if nothing
//     is synced). So a group that cannot be read while a later header exists was
//     acknowledged: that is corruption. Without a later header it is a torn tail,
//     which nobody was told of.
//  2. Group numbers rise by one within a run and never restart: a recycled
//     file's old groups have lower numbers than any that recovery looks for.
//  3. Files are written with zeroes and synced once, before their first use, and
//     recycled when a checkpoint has covered all of their groups.
//  4. After an error nothing is written any more; every later submission is
//     answered with that error.
//  5. Submissions become durable in the order in which they came.
//  6. What a replay gave is durable before Open returns, as if it had been
//     acknowledged: who acts on it cannot find it gone after a power cut.
//
// # File %016x.log: groups at multiples of 512 bytes, little-endian
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
// The write goes on with zeroes to the end of a 4096-byte page: a partial write
// of a page that is not cached would have to read it first. Where the file system
// can, groups are written past the page cache.
package journal
