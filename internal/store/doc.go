// Package store is the storage of one data directory: one journal, and per
// partition the segments, the commit log and the channel state.
//
// A submission goes to the journal, is synced there together with whatever else
// was submitted meanwhile, is answered, and only then flows into the segments,
// which are synced by checkpoints. The package decides nothing about
// replication: it does what it is told, in order, and says when that is durable.
//
// # Invariants
//
//  1. Synced is called once per submission, in the order of submissions, and
//     without an error only after the journal's sync.
//  2. A file other than the journal is changed only by what is durable in the
//     journal. So recovery may cut the segments to the lowest cut since the
//     checkpoint and write the rest again from the journal.
//  3. The end of a partition is the checkpoint record plus the replay, never the
//     size of a file. A checksum that fails cuts nothing: the place goes into
//     quarantine, until Mend puts bytes there which the chain proves.
//  4. A journal file is used again only when a durable checkpoint holds all it
//     held; and nothing is acknowledged after Open before the replayed tail was
//     written anew and synced (the pages that a failed sync left may be lies).
//  5. The store id of a partition is renewed, durably, before it answers
//     anything, when acknowledged bytes are missing or doubtful: a corrupt
//     journal, a lost checkpoint, a broken chain, or unsynced operation and
//     another boot of the machine. What can still be read after a corrupt group
//     is kept as far as it continues what is there; without a checkpoint, the
//     newest groups without a gap count.
//  6. After the first error of a write or sync the store has stopped: nothing is
//     retried, everything submitted is answered with the error.
//
// Locks, in this order: Store.order → Partition.files → Store.mu → Partition.mu,
// and those of journal, queue and commitlog below. No lock is held while a Sink
// is called.
//
// # Goroutines
//
// The journal's two, and the writer: it brings durable submissions into the
// segments and makes the checkpoints. Started by Open, ended by Close.
//
// # Files
//
//	DIR/checkpoint                     see checkpoint.go
//	DIR/journal/%016x.log              see package journal; the bodies: record.go
//	DIR/topics/TOPIC.ID/N/store.json   {"format":1,"store":"…","slot":"…","crc":…}
//	DIR/topics/TOPIC.ID/N/%020d.seg    see package queue
//	DIR/topics/TOPIC.ID/N/%020d.idx    see package commitlog
//	DIR/topics/TOPIC.ID/N/channels.snap  see snapshot.go
//	DIR/trash/TOPIC.ID.N.NANOSECONDS   partitions taken away, kept for a grace time
//
// # Journal record, little-endian; a submission is records one after the other
//
//	offset size field
//	     0    4 length of the record, this header included
//	     4    1 kind (queue.WriteKind)
//	     5    1 flags: 1 = a full confirm
//	     6    2 zero
//	     8    8 slot: which partition folder (store.json)
//	    16    8 epoch
//	    24    8 offset of the write's position
//	    32    8 sequence of the write's position; number of a confirm
//	    40    4 previous batch's checksum (restart, cut, reset)
//	    44    4 zero
//	    48      batches, or the confirm's delta
package store
