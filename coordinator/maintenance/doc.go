// Package maintenance does the periodic work on one broker's partitions: retention, dead
// letters, the repair of damaged places, and the watch on the disk. Each is a small type
// with a Job, and one Runner runs them all. For the controller it collects tombstones and
// the trash, and deletes idle topics and channels.
//
// It decides nothing about replication: no election, membership or truncation depends on
// it. Its own writes to a log are proposed like any put.
//
// # Invariants
//
//  1. Retention removes whole segments only. Every durable channel of the replica's own
//     state has passed such a segment, no edge repeats a put in it any more, and the topic does
//     not keep it for replay. Age and size never remove a message that a channel needs.
//  2. A dead letter is put to its dead-letter topic first and finished then: it is never
//     lost, and may be there twice.
//  3. A damaged place is replaced only by batches that continue the chain of checksums
//     (store.Partition.Repair).
//  4. A topic in the trash goes when the grace that it was deleted with has passed by the cluster's
//     clock since the controller saw it there. No time of day decides that.
//  5. A topic is deleted as idle only if the present leaders of all its partitions have seen no use of
//     them for the time in its option, twice, and its key has not changed since. It lies in the trash
//     then. Each unknown counts as a use: a leader that does not answer, or has just been elected.
//  6. A channel is deleted as idle only if its announcement stood for the whole grace, and the present leaders
//     of all partitions of its topic have seen no use of it for that time and the time in the topic's option
//     before. They are asked again directly before. Each unknown keeps the channel.
//  7. A tombstone of a topic goes only when all brokers have been here, without a break,
//     for a while since the topic was deleted.
//
// # Goroutines
//
//	job          one for each Job, started by Runner.Start, ends with the group
//	dead letters short ones, one for each partition that has some
//	tombstones   a short one while some are removed
//	trash        a short one while topics in it are permanently removed
//	idle         a short one while leaders are asked for topics and channels that nothing uses
package maintenance
