// Package directory answers where things are in the cluster: the leader of a partition,
// the brokers that serve a topic, the view of the whole.
//
// It answers from the watched metadata and from the replicas here, and asks other brokers
// only for the ends of the partitions that they lead. It changes nothing but the list of
// nodes that an operator hides from lookups, which is in memory only.
//
// # Invariants
//
//  1. A leader is named only while its incarnation is registered, or answers this broker
//     in a later epoch than the metadata names.
//  2. A dead broker is dropped at once from all answers; a consumer is connected to a
//     survivor when a leader dies.
//  3. No answer waits longer than 1.5 s.
//
// It starts no goroutine that outlives a call.
package directory
