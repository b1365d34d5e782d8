// Package moves says where replicas are to lie: an operator moves one, balances all, decommissions or drains a
// broker, and asks first for the plan of it.
//
// It writes the targets into the metadata and moves no replica: the controller (coordinator/controller/plan) brings
// each partition there step by step. Plan makes no change.
//
// # Invariants
//
//  1. A target is written by compare-and-swap: if another writer was faster, the change is recomputed from
//     the key as it is now. A balance leaves alone a partition for which another operator has other plans.
//  2. Only a broker that runs, is not being decommissioned and is not drained gets replicas.
//  3. Of two drains at the same time that would leave no broker to lead, one fails.
//  4. A plan follows from the controller's own rules, for the cluster as this broker sees it.
//
// # Goroutines
//
// Short ones: a balance writes the keys of several partitions at once.
package moves
