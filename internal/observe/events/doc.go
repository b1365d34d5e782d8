// Package events keeps the rare events of a cluster, as seen by one broker, for a day: elections, changes of in-sync
// sets, rollbacks, truncations, alarms, brokers that come and go.
//
// Every broker watches the metadata, so it has the changes of the whole cluster. The package internal/frontend/console
// joins the lists of all brokers, removes duplicates (Event.Key), and preserves the events across a restart of the
// broker (Restore).
//
// Limits: maxPartitionEvents changes of partitions and maxEvents others. An event older than a day is not listed.
//
// Invariants:
//
//  1. Add waits only for a short leaf lock, because it is called under the run lock of a core loop. No filter and no
//     copy of events runs under the lock.
//  2. The changes of many partitions never displace the other events.
//
// The package starts no goroutine.
package events
