// Package replicas keeps the replicas on this broker as the metadata says. It prepares the
// replicas of topics that are about to be created, and opens those that are placed here. It
// hides those of topics in the trash, and lets go of those that were moved away or deleted.
//
// It does not decide where replicas lie (packages admin and control do) and does not run
// them (package engine does).
//
// # Invariants
//
//  1. A folder is moved to the trash only for one of two reasons: there is a tombstone of its
//     topic id, or the partition's key no longer names this broker. The key is read linearizably
//     after the replica has ceased to acknowledge.
//  2. A store that was prepared goes only if no key names its partition and nothing was
//     ever promised or written there.
//  3. One goroutine at a time creates, opens or lets go of a partition's store (lock).
//  4. A machine is notified of each of its replicas' brokers once, in the order of the
//     metadata: one goroutine calls the methods …Changed.
//  5. A replica of a topic that requires sync acknowledges nothing before the store syncs
//     everything (durability.go).
//  6. A replica for which the disk has no room is opened once it has (Retry).
//
// # Goroutines
//
// All are in the caller's group. These are short:
//
//	one for each deleted topic, which moves its folders to the trash; if the topic had a grace,
//	it reads the tombstone first
//	one for each replica that was moved away, which moves its folder to the trash
//	one for each Sweep
//	one for each changed topic, which looks at its durability
//
// KeepDurability runs in a goroutine of the caller, until its context ends.
package replicas
