// Package maintenance does the periodic work on one broker's partitions: retention, dead letters, the repair of damaged
// places, and the watch on the disk. For the controller it removes tombstones and trashed topics, and deletes topics and
// channels that nothing uses.
//
// It decides nothing about replication: no election, membership or truncation depends on it. Its own writes to a log are
// proposed like any put.
//
// # Invariants
//
//  1. Retention removes whole segments only, and only those that every durable channel of the replica's own state has passed,
//     of which no put can be repeated, and that the topic does not keep for replay. Age and size never remove a message that a
//     channel needs.
//  2. A dead letter is published to its dead-letter topic first and finished then: it is never lost, and may be there twice.
//  3. A damaged place is replaced only by batches that continue the chain of checksums (store.Partition.Repair).
//  4. A topic in the trash is removed when its grace has passed by the cluster's clock since the controller first saw it
//     there. This depends on no time of day.
//  5. A topic is deleted as idle only if the present leaders of all its partitions have reported twice that nothing has used
//     them for the time in its option, and its key has not changed since. It moves to the trash. Each unknown counts as a use:
//     a leader that does not answer, or has just been elected.
//  6. A channel is deleted as idle only if it was announced for the whole grace, and the present leaders of all partitions of
//     its topic report that nothing has used it for that time and the time in the topic's option before. They are asked again
//     directly before. Each unknown keeps the channel.
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
