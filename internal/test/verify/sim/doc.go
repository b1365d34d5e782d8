// Package sim runs the real replication machine (coordinator/replica), the real
// channels (nsqd), the real batch codec (nsqd/queue) and the real planner of the
// cluster (coordinator/controller/plan) on several simulated brokers in one
// goroutine, under one seed.
//
// Network, disks, etcd, clocks, clients and faults are models; the decisions are
// not: the daemon's own code replicates, commits, rolls back, delivers, retains,
// relocates and moves. A seed determines a scenario
// (cluster size, times, list of faults), and scenario plus seed determine every
// event, so a failure is reproduced by its seed alone and shrinks by leaving
// faults out.
//
// The stand-ins for the daemon's own code keep to its order: events wait for a pass of
// the core loop, which steps all machines before it submits, sends and proposes, and
// publishes and answers later, while channels and timers continue; a watch is applied whole
// before any machine receives it, and shows late what a broker knows already; a
// transaction compares what its broker knows when it is sent; a replica that was moved
// away is mute until it is dropped, and continues if it is moved back; a leader that
// reaches the metadata alone says so and is replaced.
//
// It does not simulate files (nsqd/store has its own crash tests), the wire
// encoding, gateways or topics: a submission to the journal is atomic and is
// kept or lost as a whole, and a message arrives whole or not at all. A flipped
// bit lies in a committed batch. The node that reads it keeps the batch in quarantine and
// asks an in-sync peer for it, as the store does.
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
// after which an operator recovers from one replica. The log of that replica is the
// history from then on; a replica that returns with more has to raise an alarm.
//
// One seed of six is gray (gray.go): it has no plan of faults, but one broker at a time
// that is half alive: its links flap every 0.1 to 0.8 T_isr, its disk hangs for 0.5 to 32
// T_isr, its process stands still, it reaches only the metadata or only the brokers, or its wall
// clock jumps within an hour of the right time and keeps a difference. A quarter of these seeds
// has OK from the page cache, and some have delayed messages. A delayed message is due when the
// clock of its leader says so: with clocks that differ by an hour it may come an hour late, and the
// healed clocks agree on a time that none of them has passed.
//
// A healed network still loses a message occasionally, but repeats it within
// T_lag: there and back is within the write deadline, so every put commits.
//
// # What stands in for the daemon, and why it stays
//
// Whole brokers run in internal/test/verify/world, which is the witness of the daemon's own loops. The stand-ins below stay because they
// make one seed much cheaper and reach states of the core that a whole broker reaches rarely:
//
//   - loop.go: the machines need a driver. Its passes have seeded lengths, so that views and answers come late by choice.
//   - host.go, node.go: what a broker has for a partition: machine, channels, log. A process dies between any two steps.
//   - queue.go: the event queue and its time. Other simulators of events would cost the same lines.
//   - disk.go, image.go, index.go: a log in memory, of which a crash keeps a prefix of whole batches. nsqd/store has the real one.
//   - damage.go: quarantine and repair need a fault in a chosen batch of a chosen replica, which keeps what replication promises.
//   - retain.go: decides only when retention runs, and how far. nsqd decides what is relocated.
//   - channels.go, consumer.go: replicate deltas of the real channels. Rules 7, 8 and 12 compare them at every step, which no client can see.
//   - client.go: repeats a put under one request id at chosen moments. The gateways of world choose them by themselves.
//   - etcd.go, watch.go, unreachable.go: transactions that land late, and watches that lag by choice, between any two steps.
//   - control.go: executes the plans of the real planner, by two controllers at once if the seed wants it.
//
// # What is checked
//
//  1. A put answered Committed or Duplicate is in the committed log, once, at
//     the sequence of the answer; it stays there forever.
//  2. A committed offset holds the same bytes on every node at every time.
//  3. A put whose every attempt was refused or rolled back is nowhere: neither
//     in a log at the end nor ever delivered.
//  4. Nothing is in the log that no client sent, and no request id twice.
//  5. Every member of the in-sync set in etcd that has not lost its disk holds
//     all committed batches durably; a node whose disk is gone is not proposed, once
//     the proposer was notified of the process that came back without it.
//  6. |ISR| ≥ MinISR in etcd, and epochs rise by one with each change of leader.
//  7. A delivery is a committed message with its bytes, and none that was
//     finished on all in-sync replicas, unless by a leader deposed before.
//  8. On an ordered channel nothing is passed over, and nothing comes behind
//     what a leader of the same or an earlier epoch has delivered.
//  9. Every write of a node continues its own log by the chain of checksums.
//  10. Every ticket is answered exactly once, unless its process dies.
//  11. After healing, within a bounded time: each partition has a leader, its
//     replicas are where the topic requires them and in the in-sync set, all damage
//     is repaired, a new put commits, every message is delivered and finished,
//     and all replicas hold the same bytes and the same channels.
//  12. Whenever an in-sync set holds every delta of its leader's channels, and no delta
//     is in flight, their states are equal.
//  13. The history of all clients passes internal/test/verify/judge, the judge of the tests
//     with real processes, which has to flag corrupted histories.
//  14. No message is delivered before it is due by the latest of the clocks, and at the end a
//     consumer has tried to finish each one that its channel is done with.
//  15. While faults continue: if a minimum of members is well, and these reach each other and
//     the metadata, puts are served within the times of coordinator/replica/DESIGN.md and one T_isr, which
//     stands for a second. A leader that has served delivers as long as the metadata
//     names it. A machine stops only because of its disk. A delivery is in flight for no longer
//     than twice its timeout by the right clock (liveness.go).
package sim
