// Package controller does the work of the cluster's controller, on the broker that is elected: it holds the controller's key,
// carries out plans, raises the feature level, removes brokers that left, and runs the controller's jobs (tombstones, trash,
// idle topics and channels).
//
// It plans nothing itself (package plan does, a pure function) and is not involved in failover: no election needs a
// controller.
//
// # Invariants
//
//  1. Every transaction compares that this broker is still the controller (the fence): the key's CreateRevision.
//  2. The key is under the registration's lease, and ends with the registration.
//  3. The feature level never rises above the level of any broker that is registered or was, unless it was removed.
//  4. Plans transfer at most 1.5 % of the leaderships a second, and one a second in a small cluster (pace). This does
//     not limit failovers and planned stops.
//
// Run runs in a goroutine of the caller, until its context ends; it is idle unless this broker is elected.
package controller
