// Package store is the storage of one data directory: one journal and, per partition, the segments,
// the commit log and the channel state.
//
// A submission goes to the journal, and is synced there together with all submissions that arrived during the previous
// sync. Then it is answered, and only then written to the segments, which checkpoints sync. The package decides nothing
// about replication: it executes submissions in order and reports when they are durable.
//
// # Invariants
//
//  1. Synced is called once per submission, in the order of the submissions, and without an error
//     only after the sync of the journal (with NoSync: after the write).
//  2. Every other file changes only by writes that are durable in the journal. So recovery may cut
//     the segments to the lowest cut since the checkpoint and write the rest again from the journal.
//  3. The end of a partition is the checkpoint's entry plus the replay, never the size of a file. A failed checksum
//     cuts nothing: the range goes into quarantine, until Repair writes bytes that the chain of checksums proves.
//  4. A journal file is reused only after a durable checkpoint includes all its groups. After Open nothing is
//     acknowledged before the replayed tail was written again and synced, because after a failed sync pages may exist
//     only in the cache.
//  5. A partition gets a new store id, durably, before it answers anything, if acknowledged bytes are missing or
//     doubtful. The reasons are: a corrupt journal; a journal that ends before its acknowledgement record or before the
//     segments; a lost checkpoint; a broken chain; a channel snapshot older than the checkpoint; unsynced operation
//     followed by a reboot of the machine, unless the store was closed before (the checkpoint's clean mark). After a
//     corrupt group, readable groups are kept as far as they continue the log. Without a checkpoint, the newest groups
//     without a gap are kept.
//  6. After the first error of a write or a sync the store has stopped. It retries nothing and answers
//     every submission with the error. A failed sync of the whole file system is not such an error: the failed write
//     may be of another process, and if it is of a file of the store, the sync of that file reports it.
//
// # Locks
//
// Only SetSync takes Store.modes, and holds it during its checkpoints. The other locks are taken in this order:
// Store.order → Partition.files → Store.mu → Partition.mu, and below them the locks of journal, segments and commitlog.
// Store.order and Store.mu are held over Journal.Submit: the journal may answer before the submission is in the list of
// unsynced ones. Partition.files is held over disk calls. No lock is held while a Sink is called, except the journal's
// (journal.writing), which guarantees the order of the calls.
//
// # Goroutines
//
// The two goroutines of the journal, and the writer, which writes durable submissions to the
// segments and makes the checkpoints. Open starts them, Close ends them.
//
// # Files: on disk
//
//	DIR/checkpoint                     see checkpoint.go
//	DIR/journal/%016x.log              see package journal; the bodies: record.go
//	DIR/journal/acknowledged           see package journal
//	DIR/topics/TOPIC.ID/N/store.json   {"format":1,"store":"…","slot":"…","crc":…}
//	DIR/topics/TOPIC.ID/N/%020d.seg    batches, one after the other (package queue)
//	DIR/topics/TOPIC.ID/N/%020d.idx    see package commitlog
//	DIR/topics/TOPIC.ID/N/channels.snap  see record.go
//	DIR/trash/TOPIC.ID.N.NANOSECONDS   removed partitions, until a grace time has passed
//
// # Journal record: on disk, by position, append only
//
// Little-endian. A submission is records one after the other:
//
//	offset size field
//	     0    4 length of the record, this header included
//	     4    1 kind (queue.WriteKind)
//	     5    1 flags: 1 = a full state version
//	     6    2 zero
//	     8    8 slot: which partition folder (store.json)
//	    16    8 epoch
//	    24    8 offset of the write's position
//	    32    8 sequence of the write's position; number of a state version
//	    40    4 previous batch's checksum (restart, cut, reset)
//	    44    4 zero
//	    48      batches, the delta of the state version, or an identity mark: from, end, clock in ms,
//	            clock of the newest forgotten identity (8 bytes each)
package store
