// Package coordinator is one broker of a cluster: it runs the replication
// machines of its partitions (coordinator/replica) with a real disk, real
// sockets and real metadata, and decides who may write and where replicas live.
//
// It holds no protocol rule of its own: what is committed, elected or truncated
// is decided by replica.Machine; what a transaction may change, by the compares
// that the proposer puts in front of it. It knows no client protocol; the edges
// reach it through the interfaces of internal/edge.
//
// # The parts
//
//	Broker     owns everything below; started and stopped by cmd/nsqd
//	loop       S of them; a partition's machine lives on one for ever
//	catalog    what the watch of the metadata last said
//	proposer   turns replica.CAS into transactions and reads answers back
//	session    the registration: lease, live key, incarnation
//	membership who answers, who is dead
//	timer      channels' timeouts and deltas, every 10 ms
//
// # Invariants
//
//  1. A machine is stepped by its loop's goroutine alone, which never blocks, and
//     does no I/O but to copy to the page cache what is not synced
//     (--durability=replicated).
//  2. Effects are carried out in their order: writes to the store before sends,
//     reads, compare-and-swaps and completions of the same pass.
//  3. A Completer is called exactly once, also at shutdown.
//  4. A transaction on a partition's key compares the key's ModRevision and the
//     proposer's own incarnation; its lost answer is never taken for "no".
//  5. Only role Leader serves. Channels are told to stop before anything else
//     when it ends.
//  6. A folder of a replica goes only on a tombstone of its topic id, read from
//     the metadata, and then to the trash.
//  7. No number of an incarnation serves in two runs of a process, and a broker
//     whose registration is gone leads nothing until it has a new one.
//
// # Goroutines
//
//	loop         S, started by Start, ends at Broker.Close; owns its machines
//	reader       2, catch-up reads from the store; answers go to the loops
//	proposer     16, transactions and read-backs
//	watcher      1, owns the catalog; opens and retires replicas
//	session      1, waits for the loss of the registration
//	timer        1, Flush and Expire of the channels led here, and their fence
//	space        1, watches the disk reserve, tells the others while it is reached
//	unreached    1, tells whom a leader cannot reach, so that it may be replaced
//	contact      1, asks the metadata, more often while a leader misses replicas
//	dead letters 1, moves messages that failed too often
//	retention    1, trims logs and carries unfinished messages forward
//	controller   1, idle unless this broker is elected; plans in coordinator/controller
//
// Short ones (burying a dead peer, sweeping, moving a replica away) are started
// by Broker.background, which Close waits for.
package coordinator
