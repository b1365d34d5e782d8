// Package sim runs the real replication machine (coordinator/replica), the real
// channels (nsqd), the real batch codec (nsqd/queue) and the real planner of the
// cluster (coordinator/controller) on several simulated brokers in one
// goroutine, under one seed.
//
// Network, disks, etcd, clocks, clients and faults are models; the decisions are
// not: what is replicated, committed, taken back, delivered, kept, carried and
// moved is decided by the code of the daemon. A seed determines a scenario
// (cluster size, times, list of faults), and scenario plus seed determine every
// event, so a failure is reproduced by its seed alone and shrinks by leaving
// faults out.
//
// What stands for the daemon's own code keeps to its order: events wait for a pass of
// the core loop, which steps all machines before it submits, sends and proposes, and
// publishes and answers later, while channels and timers go on; a watch is applied whole
// before any machine hears of it, and says late what a broker knows already; a
// transaction compares what its broker knows when it is sent; a replica that was moved
// away is mute until it is dropped, and goes on if it is moved back; a leader that
// reaches the metadata alone says so and is replaced.
//
// It does not simulate files (internal/store has its own crash tests), the wire
// encoding, gateways or topics: a submission to the journal is atomic and is
// kept or lost as a whole, and a message arrives whole or not at all. A flipped
// bit lies in a committed batch; whoever reads it keeps it in quarantine and asks
// an in-sync peer for it, as the store does.
//
// Damage keeps to what replication promises: of each batch some in-sync replica
// that no move is about to drop stays whole, and fewer than MinISR members lose
// their disks at once, also of an in-sync set that is proposed and may still land.
// A backup that is put back brings its damage along.
//
// Half of all seeds mean more than their plan of faults (more.go): replicas that are away
// until retention has passed them, messages that are to be delivered later, tables of
// very few epochs, OK from the page cache (a process that is killed loses nothing then, a
// machine that loses power is another store), and disks lost beyond what is promised,
// after which an operator goes on with what a replica has. What that replica had is the
// history from then on; whoever comes back with more has to raise an alarm.
//
// A healed network still loses a message now and then, but repeats it within
// T_lag: there and back is within the write deadline, so every put commits.
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
//     all committed batches durably; nobody is proposed whose disk is gone, once
//     the proposer has heard of the process that came back without it.
//  6. |ISR| ≥ MinISR in etcd, and epochs rise by one with each change of leader.
//  7. A delivery is a committed message with its bytes, and none that was
//     finished on all in-sync replicas, unless by a leader deposed before.
//  8. On an ordered channel nothing is passed over, and nothing comes behind
//     what a leader of the same or an earlier epoch has delivered.
//  9. What a node writes continues its own log by the chain of checksums.
//  10. Every ticket is answered exactly once, unless its process dies.
//  11. After healing, within a bounded time: each partition has a leader, its
//     replicas are where they are wanted and in the in-sync set, what was damaged
//     is repaired, a new put commits, every message is delivered and finished,
//     and all replicas hold the same bytes and the same channels.
//  12. Whenever an in-sync set holds all that its leader has said of its channels, and
//     there is nothing more to say, their states are equal.
//  13. What all clients saw passes internal/e2e/history, the judge of the tests
//     with real processes, which has to flag 19 corrupted histories.
//  14. No message is delivered before it is due, and at the end somebody has tried to
//     finish each one that its channel is done with.
package sim
