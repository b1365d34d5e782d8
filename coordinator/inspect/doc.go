// Package inspect reads the replicas on this broker for operators and tools: digests,
// messages, statistics, ends, damaged places.
//
// It changes nothing, asks no other broker, and reads committed messages only.
//
// # Invariants
//
//  1. Statistics count a partition at its leader alone, or tools that sum over brokers
//     would count each message once for each replica.
//  2. An answer is bounded; the next one begins where it says.
//
// It starts no goroutine.
package inspect
