// Package coordinator is one broker of a cluster: it connects the components below, starts them, hands them to the front ends,
// and stops them in the reverse order.
//
// It has no rule of its own and no part of the client protocol. The front ends use the components as interfaces of
// internal/api, the gateway uses the broker as gateway.Core.
//
// # Components
//
//	catalog      the watched metadata
//	session      the registration: lease, incarnation, boot counter; contact with the metadata
//	txn          transactions on the metadata
//	engine       core loops: runs the replication machines (coordinator/replica)
//	liveness     which brokers answer, are dead, or unreachable
//	replicas     opens, closes and moves away the replicas that the metadata assigns to this broker
//	gateway      puts and subscriptions of any topic on any broker
//	query        information about the cluster (Directory) and the replicas here (Inspector)
//	admin        operations on topics, channels and brokers
//	controller   the work of the elected controller; controller/plan plans it
//	maintenance  periodic work: retention, dead letters, repair, disk space, deletion of unused topics and channels
//	dispatch     frames and calls of other brokers, in and out
//
// # Invariants
//
//  1. Close ends everything that Start began, in the reverse order; every put that waits is answered.
//  2. Only the goroutine of the watch applies the metadata and posts it to the machines, so that the last state that a machine
//     receives is the newest.
//  3. A broker without a registration leads nothing.
//  4. Other brokers reach this one only when all components exist.
//
// # Goroutines
//
// All goroutines except those of the components are in one group, which Close ends and waits for: drive starts them,
// maintenance has one for each kind of work.
package coordinator
