// Package quota refuses creations beyond the limits of the cluster, of a topic or of a user: topics, partitions and
// channels.
//
// It counts the watched metadata (coordinator/metadata/catalog), and the creations and growths under way on this
// broker. It creates nothing, and does not limit rates of messages or connections (internal/auth/guard,
// internal/auth/limits), but that at which a user with a quota creates topics.
//
// # Invariants
//
//  1. A creation counts from its admission on, once: as one under way until the metadata shows it or done is
//     called, afterwards as one of the metadata.
//  2. A topic or channel that exists already is never refused.
//  3. Creations on several brokers at the same moment do not see each other: they alone may exceed a limit.
//
// # Locks and goroutines
//
// It starts no goroutine. Its lock is held over reads of the catalog (docs/LOCKS.md), never over I/O.
package quota
