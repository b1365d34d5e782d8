// Package events keeps the rare events of a cluster, as one broker saw them, for a day: elections, changes of in-sync sets,
// rollbacks, truncations, alarms, brokers that come and go.
//
// Every broker watches the metadata and so keeps the changes in it for the whole cluster. The package internal/frontend/console
// joins the lists of all brokers and removes what several of them saw (Event.Key). internal/frontend/console also keeps them over
// a restart of the broker (Restore).
//
// Limits: maxPartitionEvents changes of partitions and maxEvents others. An event older than a day is not listed.
//
// Invariants:
//
//  1. Add waits for nothing but a short lock, which is a leaf: it is called under the run lock of a core loop. The lock is held
//     for no filter and no copy of events.
//  2. The changes of many partitions never push the other events out.
//
// The package starts no goroutine.
package events
