// Package events has the rare events of a cluster, as one broker saw them, for a day: elections, changes of in-sync sets,
// rollbacks, truncations, alarms, brokers that come and go.
//
// Every broker watches the metadata, so it has the changes of the whole cluster. The package internal/frontend/console joins the
// lists of all brokers, removes duplicates (Event.Key), and saves the events over a restart of the broker (Restore).
//
// Limits: maxPartitionEvents changes of partitions and maxEvents others. An event older than a day is not listed.
//
// Invariants:
//
//  1. Add waits for nothing but a short lock, which is a leaf: it is called under the run lock of a core loop. No filter and no
//     copy of events runs under the lock.
//  2. The changes of many partitions never displace the other events.
//
// The package starts no goroutine.
package events
