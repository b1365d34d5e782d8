// Package replicas opens and closes the replicas on this broker according to the metadata. It prepares the replicas of
// topics that are about to be created, opens those that are placed here, marks those of topics in the trash, and
// removes those that were moved away or deleted.
//
// It does not decide where replicas are placed (packages admin and controller) and does not run them (package engine).
//
// # Invariants
//
//  1. A folder is moved to the trash only for one of two reasons: its topic id has a tombstone, or the partition's key
//     no longer names this broker. The key is read linearizably after the replica has stopped acknowledging.
//  2. A prepared store is removed only if no key names its partition and nothing was ever promised or written there.
//  3. One goroutine at a time creates, opens or closes a partition's store (lock).
//  4. A machine is notified of each of its replicas' brokers once, in the order of the metadata: one
//     goroutine calls the methods …Changed.
//  5. A replica of a topic that requires sync acknowledges nothing before the store syncs everything (settings.go).
//  6. A replica for which the disk has no space is opened as soon as there is space (Retry).
//
// # Goroutines
//
// All are in the caller's group and short: one for each deleted topic and each replica that was moved
// away, which moves folders to the trash; one for each Sweep; one for each changed topic, which checks
// its durability. RunDurability runs in a goroutine of the caller, until its context ends.
package replicas
