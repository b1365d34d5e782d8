// Package sim runs the real replication machine (coordinator/replica) on
// several simulated brokers in one goroutine, under one seed.
//
// Network, disks, etcd, clocks, clients and faults are models; the protocol is
// not: every decision is taken by replica.Machine. A seed determines a
// scenario (cluster size, times, list of faults), and scenario plus seed
// determine every event, so a failure is reproduced by its seed alone and
// shrinks by leaving faults out.
//
// It does not simulate files (internal/store has its own crash tests), the wire
// encoding, gateways or topics: a submission to the journal is atomic and is
// kept or lost as a whole, and a message arrives whole or not at all.
//
// # What is checked
//
//  1. A put answered Committed or Duplicate is in the committed log, once, at
//     the sequence of the answer; it stays there for ever.
//  2. A committed offset holds the same bytes on every node at every time.
//  3. A put whose every attempt was refused or rolled back is nowhere: neither
//     in a log at the end nor ever delivered.
//  4. Nothing is in the log that no client sent, and no request id twice.
//  5. Every member of the in-sync set in etcd that has not lost its disk holds
//     all committed batches durably.
//  6. |ISR| ≥ MinISR in etcd, and epochs rise by one with each change of leader.
//  7. A confirmed change of the channel state is known to every later leader.
//  8. What a node writes continues its own log by the chain of checksums.
//  9. Every ticket is answered exactly once, unless its process dies.
//  10. After healing, within a bounded time: each partition has a leader, each
//     replica is in the in-sync set, a new put commits, and all replicas hold
//     the same bytes.
package sim
