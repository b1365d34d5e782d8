// Package admin carries out administration: topics, channels, their policies, placement, redrive and unclean recovery.
// The broker that receives the request writes the metadata, and asks the leaders of partitions for the rest.
//
// It parses no arguments (internal/frontend/httpapi does) and moves no replica (coordinator/controller changes the
// placement step by step).
//
// # The parts
//
//	Admin      Do: carries out one operation, by its type
//	topics     create, delete, options, replication
//	Channels   create, delete, pause, order, seek, policy; deferred messages
//	moves      move, balance, decommission, drain, and their plans (a package)
//	redriver   moves dead letters back
//	recovery   continues without the in-sync set
//	Queues     the receiving side: operations on the channels of partitions led here
//	quota      refuses creations beyond the limits of the cluster, a topic or a user (a package)
//	records    compare-and-swap changes of single keys
//	leaders    makes calls to the leaders of partitions
//
// # Invariants
//
//  1. The key is authoritative: if two operators change it, the later write wins. After the leaders have applied a
//     change, its operator reads the key again, and repeats this until the leaders have the key's value.
//  2. A topic's key changes whenever a channel is created or deleted, so a broker that counts the channels at a
//     revision of the topic's key misses none.
//  3. A channel is deleted in three steps: its key is marked, every leader deletes it, the key is removed. An
//     interrupted deletion can be repeated, and no broker recreates the channel in between.
//  4. A topic is written with all its partitions in one transaction, under a new id, with
//     at least min_in_sync stores prepared. Unused prepared stores are released.
//  5. An unclean recovery fails if a member of the old in-sync set was started, or ended, since it was asked.
//
// # Goroutines
//
// Short ones: one for each call to several brokers, and one that releases unused prepared stores.
package admin
