// Package hosting keeps the replicas on this broker as the metadata says: it opens those
// that are placed here, prepares those of topics that are about to be created, lets go
// of those that were moved away or deleted, and hides those of topics in the trash.
//
// It does not decide where replicas lie (packages admin and control do) and does not run
// them (package engine does).
//
// # Invariants
//
//  1. A folder goes only on a tombstone of its topic id, or on a partition's key that,
//     read linearizably after the replica has ceased to acknowledge, names this broker no
//     more; and then to the trash.
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
// Short ones in the caller's group: one that trashes the folders of a deleted topic (of one whose
// grace is over, after it has read the tombstone), one
// that trashes a replica that was moved away, one that sweeps (Sweep), one that looks at
// the durability of a changed topic. KeepDurability runs in a goroutine of the caller, until
// its context ends.
package hosting
