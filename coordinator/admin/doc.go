// Package admin carries out administration: topics, channels, their policies, where
// replicas are to lie, redrive and unclean recovery. It does so on the broker that is
// asked for: it writes the metadata, and asks the leaders of partitions for the rest.
//
// It parses no arguments (internal/frontend/httpapi does) and moves no replica (package control
// brings the metadata there step by step).
//
// # The parts
//
//	Admin      Do: one operation after the other, by type
//	Topics     create, delete, limits, replication
//	Channels   create, delete, pause, order, seek, policy; deferred messages
//	moves      move, balance, decommission, drain, and their plans (a package)
//	Redriver   moves dead letters back
//	Recovery   continues without the in-sync set
//	Queues     the other end: operations on the channels of partitions led here
//	quota      refuses creations beyond the limits of the cluster, a topic or a user (a package)
//	records    compare-and-swap changes of single keys
//	leaders    asks the leaders of partitions
//
// # Invariants
//
//  1. The key decides: of two operators the later write wins, and each looks again at the
//     key after the leaders have the change, until they have its value.
//  2. A topic's key moves whenever channels come or go: a broker that counts them at a
//     revision of it has seen all.
//  3. A channel is deleted in three steps: its key says so, every leader deletes it, the
//     key goes. An interrupted delete can be repeated, and no broker recreates the channel
//     in between.
//  4. A topic is written with all its partitions in one transaction, under a new id, with
//     at least min_in_sync stores prepared. Prepared stores of no topic are released.
//  5. An unclean recovery holds only if no member of the old in-sync set was started, or
//     ended, since it was asked.
//
// # Goroutines
//
// Short ones: one for each call to several brokers, and one that releases stores prepared
// in vain.
package admin
