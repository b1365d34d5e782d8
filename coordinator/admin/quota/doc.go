// Package quota refuses creations beyond the limits of the cluster, of a topic or of a user: topics, partitions and
// channels.
//
// It counts the watched metadata (coordinator/metadata/catalog), and the creations in progress on this broker. It
// creates nothing. The only rate that it limits is how fast a user with a quota creates topics.
//
// # Invariants
//
//  1. A creation counts once, from its admission: as pending until the metadata has it or done is called, then as part of
//     the metadata.
//  2. A topic or channel that exists is never refused.
//  3. A limit can be exceeded only by concurrent creations on several brokers, which do not see each other.
//
// # Locks and goroutines
//
// It starts no goroutine. Its lock is held over reads of the catalog (docs/LOCKS.md), never over I/O.
package quota
