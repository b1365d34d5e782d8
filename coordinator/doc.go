// Package coordinator is one broker of a cluster: it puts the parts below together, starts
// them, gives them to the edges, and stops them in the reverse order.
//
// It holds no rule of its own. It has no part of the client protocol; the edges reach it through the
// interfaces of internal/api, the gateway through gateway.Core.
//
// # The parts
//
//	catalog      the watched metadata
//	session      the registration: lease, incarnation, boot counter; contact with the metadata
//	txn          transactions on the metadata
//	engine       core loops: runs the replication machines (coordinator/replica)
//	peers        which brokers answer, are dead, or unreachable
//	replicas     opens and closes the replicas here as the metadata says
//	gateway      puts and subscriptions of any topic on any broker
//	directory    where things are; inspect: what replicas here hold
//	admin        operations; deadletter, origin: two forms that it shares
//	control      the controller's work; controller and placement plan it
//	upkeep       periodic work: retention, dead letters, repair, disk space; tombstones for control
//	dispatch     frames and calls of other brokers, in and out; calls: their structs
//
// # Invariants
//
//  1. Close ends everything that Start began, in the reverse order; every put that waits is
//     answered.
//  2. The goroutine of the watch alone applies the metadata and posts it to the machines,
//     so that the last state that a machine gets is the newest.
//  3. A broker whose registration is gone leads nothing until it has a new one.
//  4. Other brokers reach this one when all parts are there, and not before.
//
// # Goroutines
//
// All but those of the parts are in one group, which Close ends and waits for:
//
//	watch         1, applies the metadata
//	registration  1, waits for its loss; 2 more keep the boot counters
//	clock         2, what is due in channels; near deadlines (engine)
//	contact       1, asks the metadata (session)
//	unreachable   1, publishes the brokers that a leader cannot reach (peers)
//	watchdog      1, gives up leaderships while the disk or a core loop does not make progress
//	store         1, waits for an error that stops it
//	durability    1, has the store sync as the topics here require (replicas)
//	upkeep        1 for each job
//	controller    1, idle unless this broker is elected (control)
package coordinator
