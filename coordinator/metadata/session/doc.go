// Package session is one broker's place in the cluster: its name, its registration with
// lease and incarnation, the boot counter that distinguishes its data path from an older copy,
// and its contact with the metadata store.
//
// It does not judge other brokers (package peers) and does not stop anything when the
// registration is lost: Lost notifies the broker, which stops its leaderships.
//
// # Invariants
//
//  1. No number of an incarnation serves in two runs of a process: it is the
//     CreateRevision of the live key.
//  2. While there is no registration Incarnation is 0, and a transaction that compares
//     it does not hold. Newest stays: request ids carry it, and two brokers must never
//     use the same.
//  3. A registration of a later run is never replaced (errReplaced); that of an earlier
//     run is revoked before this one writes its own.
//  4. The boot counter is on the data path, durably, before the metadata has it. A crash
//     in between leaves the path ahead, which is harmless.
//  5. A registration that failed leaves no lease behind.
//
// # Goroutines
//
// It starts none. RunCounting, RunObserving and Contact.Run each run in a goroutine of
// the caller, until their context ends.
package session
