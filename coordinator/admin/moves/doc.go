// Package moves decides the placement of replicas: an operator moves one, balances all, decommissions or drains a
// broker, and can request the plan first.
//
// It writes the targets into the metadata and moves no replica: the controller (coordinator/controller/plan) changes
// each partition step by step. Plan makes no change.
//
// # Invariants
//
//  1. A target is written by compare-and-swap: if another writer came first, the change is recomputed from the current
//     key. A balance skips a partition that another operator has changed.
//  2. Only a broker that runs, is not being decommissioned and is not drained gets replicas.
//  3. If two concurrent drains would leave no broker to lead, one of them fails.
//  4. A plan follows from the controller's own rules, for the cluster as this broker sees it.
//
// # Goroutines
//
// Short ones: a balance writes the keys of several partitions at once.
package moves
