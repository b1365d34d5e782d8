// Package maintenance does the periodic work on one broker's partitions: retention, dead letters, the repair of damaged
// ranges, and disk monitoring. For the controller it removes tombstones and trashed topics, and deletes topics and
// channels that nothing uses.
//
// It decides nothing about replication: no election, membership or truncation depends on it. Its own writes to a log are
// proposed like any put.
//
// # Invariants
//
//  1. Retention removes whole segments only, and only those that every durable channel has passed (in the replica's own
//     state), whose puts can no longer be repeated, and that the topic does not retain. Age and size never remove a
//     message that a channel needs.
//  2. A dead letter is published to its dead-letter topic first and finished then, so it is never lost but may be
//     stored twice.
//  3. A damaged range is replaced only by batches that continue the chain of checksums (store.Partition.Repair).
//  4. A topic in the trash is removed when its grace has passed by the cluster's clock since the controller first saw
//     it there. This does not depend on any wall clock.
//  5. A topic is deleted as idle only if the current leaders of all its partitions have reported twice that nothing has
//     used them for the time in its option, and its key has not changed since. It moves to the trash. A leader that
//     does not answer, or has just been elected, counts as a use.
//  6. A channel is deleted as idle only if it was announced for the whole grace, and the current leaders of all
//     partitions of its topic report that nothing has used it for that time, and for the time in the topic's option
//     before it. They are queried again directly before the deletion. A missing report keeps the channel.
//  7. A tombstone is removed only when all brokers have been registered, without a break, for a while since the topic was
//     deleted.
//
// # Goroutines
//
//	work         4, started by Work.Start: retention, dead letters, the disk, repair; end with the group
//	dead letters short ones, one for each partition that has some
//	tombstones   a short one while some are removed
//	trash        a short one while topics in it are permanently removed
//	idle         a short one while leaders are asked for topics and channels that nothing uses
package maintenance
