// Package query answers what is known of the cluster: the leader of a partition, the brokers that serve a
// topic, the view of the whole; and of the replicas on this broker: digests, messages, statistics, ends,
// damaged places.
//
// It answers from the watched metadata and from the replicas here, and asks other brokers
// only for the ends of the partitions that they lead. It reads committed messages only, and changes nothing but
// the list of nodes that an operator hides from lookups, which is in memory.
//
// # Invariants
//
//  1. A leader is named only while its incarnation is registered, or answers this broker
//     in a later epoch than the metadata names.
//  2. A dead broker is dropped at once from all answers; a consumer is connected to a
//     survivor when a leader dies.
//  3. No answer waits longer than 1.5 s. An answer is bounded; the next one begins where it says.
//  4. Statistics count a partition at its leader alone, or tools that sum over brokers
//     would count each message once for each replica.
//
// It starts no goroutine that outlives a call.
package query
