// Package commitlog is the index of one partition's log: one record of fixed size per batch. It finds the batch with a
// sequence or at a time, lists the epochs of the log, and has the checksums by which two replicas compare their logs.
//
// The index is derived from the batches. It is synced at checkpoints only, and rebuilt from the segments
// if it is missing or damaged. The package starts no goroutine.
//
// # Invariants
//
//  1. Records have the order of their batches. Offsets rise; sequences, epochs and times never fall.
//  2. Append, Truncate, TruncateAtGap and Restart change memory only and cannot fail. The next Flush changes the files.
//  3. A record that fails its checksum is never returned: the lookup finds nothing instead.
//  4. An append or a cut damages no other record of the same file. The name of a file is the offset of
//     its first record.
//
// # Locks
//
// Log.mu guards the records in memory and the list of files. Files are read without it. No other lock is
// taken under it.
//
// # File %020d.idx: on disk, by position, append only
//
// Records of 56 bytes one after the other, little-endian:
//
//	offset size field
//	     0    8 epoch
//	     8    8 first sequence
//	    16    8 offset
//	    24    8 time, milliseconds since 1970
//	    32    4 count of messages
//	    36    4 size of the batch
//	    40    4 header crc of the batch
//	    44    4 header crc of the batch before it
//	    48    4 flags: 1 = messages of the batch have identities
//	    52    4 crc (CRC-32C of bytes 0 to 51)
package commitlog
