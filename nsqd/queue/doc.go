// Package queue contains the codec of batches and messages. It reads and writes no file.
//
// A batch is one put (a message or a multi-put) or one control record. The edge (the broker that receives it) encodes
// it once. The same bytes are in the leader's journal and segments, on the wire, and in every follower's files. The
// package has no concept of topic names, channels or a network, and starts no goroutine.
//
// # Invariants
//
//  1. A batch is written, read, acknowledged, committed and truncated as a whole.
//  2. Each header carries the header checksum of the batch before it, so the bytes of a log
//     form a chain: equal checksums at one offset mean equal prefixes.
//  3. Sealed bytes are immutable: the memory tail, peers and readers share them.
//  4. Sequences are dense over data batches. A control batch has count 0.
//  5. Time never decreases within a partition.
//
// # Batch: on disk and on the wire, by position, append only (version)
//
// All integers are little-endian.
//
//	offset size field
//	     0    4 magic "LKB1"
//	     4    1 version, 1
//	     5    1 flags: 1 control batch, 2 data batch in which messages have identities
//	     6    1 control kind (0 in a data batch)
//	     7    1 zero
//	     8    4 length of the whole batch, header included
//	    12    4 count of messages (0 in a control batch)
//	    16    4 payload crc (CRC-32C of the bytes after the header)
//	    20    4 header crc of the batch before this one (0 at offset 0)
//	    24    8 epoch
//	    32    8 base offset: where in the partition this batch begins
//	    40    8 base sequence
//	    48    8 time, nanoseconds since 1970
//	    56    8 request id: producer
//	    64    8 request id: n
//	    72    4 clock, tenths of a second (flag 2; else 0); see Clock
//	    76    4 header crc (CRC-32C of bytes 0 to 75)
//	    80      payload
//
// # Payload of a data batch: messages, one after the other
//
//	offset size field
//	     0    4 length of the rest of the message
//	     4    1 flags: 1 trace, 2 deliver-at, 4 header, 8 identity, 16 with 8: the identity of the whole put
//	     5    8 trace id               (only with flag 1)
//	          8 deliver-at, unix ns    (only with flag 2)
//	          2 header length, n bytes (only with flag 4)
//	         16 identity               (only with flag 8)
//	            body, to the end
//
// # Payload of a relocation batch (control kind 2): messages, one after the other
//
//	offset size field
//	     0    8 sequence of the message in its original batch
//	     8    8 time of its original batch, nanoseconds since 1970
//	    16      the message as in a data batch
package queue
