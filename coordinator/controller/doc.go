// Package controller is the work of the cluster's controller, on the broker that is it: it
// holds the controller's key, carries plans out, raises the feature level, forgets brokers
// that left, has tombstones and the trash collected, and has idle topics deleted.
//
// It plans nothing itself (package plan does, a pure function) and is not on the
// path of failover: no election needs a controller.
//
// # Invariants
//
//  1. Every transaction compares that this broker is the controller still (the fence): the
//     key's CreateRevision.
//  2. The key lies under the registration's lease: it goes with the registration.
//  3. The feature level never rises above that of a broker that ever registered and was
//     not forgotten.
//  4. Plans transfer at most 1.5 % of the leaderships a second, and one in a small cluster (pace).
//     Failovers and planned stops do not pass here.
//
// Keep runs in a goroutine of the caller, until its context ends; it is idle unless this
// broker is elected.
package controller
