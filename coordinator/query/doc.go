// Package query answers requests for information about the cluster (Directory): the leader of a partition, the brokers
// that serve a topic, the view of the whole cluster. It also answers requests about the replicas on this broker
// (Inspector): digests, messages, statistics, ends, damaged ranges.
//
// It answers from the watched metadata and from the replicas here, and queries other brokers only for the ends of their
// partitions, and for messages of replicas that this broker does not have. It reads only committed messages, unless the
// request asks for others, and changes nothing but the in-memory list of nodes that an operator hides from lookups.
//
// # Invariants
//
//  1. A leader is named only while its incarnation is registered, or answers this broker in a later epoch than the metadata
//     has.
//  2. A dead broker is dropped at once from all answers: when a leader dies, consumers connect to a survivor.
//  3. No answer waits longer than 1.5 s. Answers are bounded; the next answer begins at Next of the previous one.
//  4. Statistics count a partition only at its leader: tools that sum over brokers would otherwise count each message once for
//     each replica.
//
// It starts no goroutine that outlives a call.
package query
