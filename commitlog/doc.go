// Package commitlog is the index of one partition's log: one fixed-size record
// per batch. It answers where sequence n or time t is, what was written in
// which epoch, and whether two replicas agree at an offset.
//
// It is derived from the batches: never synced before an answer, but at a
// checkpoint, and rebuilt from the segments when it is missing or damaged. It
// knows no topic, no segment and no journal.
//
// # Invariants
//
//  1. Records are in the order of their batches; offsets rise, sequences, epochs
//     and times never fall.
//  2. Append, Truncate, CutWhereBroken and Restart change memory only and cannot
//     fail. Files follow at the next Flush.
//  3. A record that does not pass its checksum is never returned: the lookup
//     finds nothing instead.
//  4. Within one file no record is damaged by appending or cutting others; a
//     file is named for the offset of its first record.
//
// # File %020d.idx, records of 56 bytes one after the other, little-endian
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
//	    48    4 zero
//	    52    4 crc (CRC-32C of bytes 0 to 51)
package commitlog
