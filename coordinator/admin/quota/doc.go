// Package quota refuses creations beyond the limits of the cluster, of a topic or of a user: topics, partitions and
// channels.
//
// It counts the watched metadata (coordinator/metadata/catalog), and the creations in progress on this broker. It creates
// nothing. The only rate that it limits is that of new topics of a user with a quota.
//
// # Invariants
//
//  1. A creation counts once, from its admission: as pending until the metadata has it or done is called, then as part of
//     the metadata.
//  2. A topic or channel that exists is never refused.
//  3. Concurrent creations on several brokers do not see each other: only they may exceed a limit.
//
// # Locks and goroutines
//
// It starts no goroutine. Its lock is held over reads of the catalog (docs/LOCKS.md), never over I/O.
package quota
