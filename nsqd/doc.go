// Package nsqd holds the topics and channels of one broker: which message goes to which subscriber, and which messages
// are in flight, deferred or finished. It contains no network and no cluster code. It reads a Log and passes changes of
// its state to a Replicator. The caller reports the committed end (Advance) and completes each change like a put.
//
// All channels of a partition share its log. A channel is a cursor on that log. A Partition holds the channels. On a
// follower a Partition is only the replicated state (the register of the replica). Lead lets it serve subscribers.
//
// verdictLocked (deliverable.go) decides whether a message is delivered now and, if not, why.
//
// The cursor of a channel with its deferred messages is package nsqd/cursor. The encoding of the
// replicated state is package nsqd/state. Message ids are in package internal/api.
//
// # Goroutines
//
// The package starts no goroutine. Subscribers call Pull. The broker's clock calls Expire at Due, and Flush while
// Dirty. A Pace ends the pauses of channels that are far behind, from its own goroutine.
//
// # Invariants
//
//  1. No message at or above the committed end is delivered, and none at or above the barrier of a paused topic.
//  2. At every moment depth + in flight + deferred + finished equals the number of messages
//     published since the channel began.
//  3. A message is in flight to at most one subscriber of a channel.
//  4. A cursor moves back only by an explicit seek. A follower keeps a cursor beyond the end of its log. A channel that
//     the follower does not have yet begins at the position in the delta.
//  5. Deltas hold absolute values. A suffix of the deltas that is applied again to a newer
//     state yields that state again. Deltas leave in the order in which they apply.
//  6. A change of leader does not count as a delivery. Each message that was in flight keeps
//     the attempts that it had before that delivery.
//  7. An ordered channel has at most one message in flight. It has none while its last finish is missing on an in-sync
//     replica, or while a failed message waits for its next delivery.
//  8. No wake-up is lost. While a message is available and a subscriber has credit that its last Pull could not use,
//     the channel signals Wake of that subscriber, or Wake of as many other subscribers as the messages need.
//  9. No lock is held over Log.Read.
//  10. A paused channel that is far behind gains on its producers: a pause ends at the latest
//     after half as many new puts as the channel has delivered since its last pause.
//  11. A message that the channel's filter rejects is finished for the channel, and a filter finishes no message that
//     it accepts. The filter in force at a delivery decides. A channel is identified by name and id: it delivers
//     nothing under the policy of another channel of the same name, nor before its own policy is set.
//  12. A receipt settles one delivery, identified by epoch and number, regardless of how the receipt arrives. No two
//     deliveries of a partition have the same epoch and number.
//
// # Locks
//
// Partition.emit → updates.applying → Partition.mu → Channel.mu. The locks of openChanges and
// relocations are leaves. Options.Wake, Subscriber.Woken and Replicator.Submit are called under
// these locks: they append to a queue and return (docs/LOCKS.md).
//
// # Memory
//
// Each channel holds its messages in flight (without bodies), the settled ranges (at most one more than the messages in
// flight), at most 64 bytes for each deferred message, and at most 512 messages or about 1 MiB that it has read ahead.
package nsqd
