// Package liveness judges the other brokers of the cluster: which ones answer, are dead,
// silent or unreachable, and notifies the machines here when that changes.
//
// It moves no frames (package rpc does, and reports connections) and carries no appends.
// It elects nothing: a machine that is notified of a death decides for itself.
//
// # Invariants
//
//  1. A broker counts as dead only when its connections have ended and its address refuses
//     new ones, or when it says itself that its store failed or hangs (Failed).
//  2. A death revokes the registration of the incarnation that died, and no other; if it was
//     concluded from refused connections, only once no other broker reaches that run (confirmed).
//  3. A machine that is introduced to its peers sees neither an old state last nor none at
//     all: events are posted under the lock. Posting never blocks.
//  4. The metadata's member on this broker is notified of a death before a write that follows
//     from it is sent.
//  5. A leader is judged partitioned by its own list alone, and only while this broker
//     reaches a minimum of the in-sync set without it.
//
// # Goroutines
//
// Short ones that ask for second opinions, notify of a death and revoke a registration, in the caller's group.
// RunUnreachable runs in a goroutine of the caller, until its context ends.
package liveness
