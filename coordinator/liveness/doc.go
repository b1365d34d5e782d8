// Package liveness judges the other brokers of the cluster: which of them answer, are dead, silent or unreachable. It notifies
// the machines on this broker when that changes.
//
// It moves no frames (package rpc does, and reports connections) and elects nothing: a machine that is notified of a death
// decides for itself.
//
// # Invariants
//
//  1. A broker counts as dead only when its connections have ended and its address refuses new ones, or when the broker
//     itself reports that its store failed or hangs (Failed).
//  2. A death revokes only the registration of the incarnation that died. If the death is inferred from refused
//     connections, the registration is revoked only when no other broker reaches that incarnation (confirmDead).
//  3. Events are posted under the lock, so that a machine that is introduced to its peers neither misses a state nor receives
//     an old one last. Posting never blocks.
//  4. The metadata member on this broker is notified of a death before any resulting write is sent.
//  5. A leader counts as partitioned only according to its own list, and only while this broker reaches a minimum of
//     the in-sync set without it.
//
// # Goroutines
//
// Short ones that query other brokers, notify them of a death and revoke a registration, in the caller's group.
// RunUnreachable runs in a goroutine of the caller, until its context ends.
package liveness
