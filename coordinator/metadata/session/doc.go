// Package session is one broker's membership in the cluster: its name, its registration with lease and incarnation, the
// boot counter that distinguishes its data path from an older copy, and its contact with the metadata store.
//
// It does not judge other brokers (package liveness), and does not stop leaderships when the registration is lost: Lost
// notifies the broker, which stops them.
//
// # Invariants
//
//  1. An incarnation is the CreateRevision of the live key, so no two runs of a process have the same.
//  2. While there is no registration Incarnation is 0, and a transaction that compares it fails. Newest stays, because
//     request ids contain it and two brokers must never use the same one.
//  3. The registration of a later run is never replaced (errReplaced). The registration of an earlier run is revoked
//     before this run writes its own.
//  4. The boot counter is durable on the data path before the metadata has it. A crash in between leaves the path ahead, which
//     is harmless.
//  5. A registration that failed leaves no lease behind.
//
// # Goroutines
//
// It starts none. RunCounting, RunObserving and Contact.Run each run in a goroutine of the caller, until their context ends.
package session
