// Package copier copies messages of one cluster into a topic of another, for `nsqctl import` and
// `nsqctl mirror`: in the order of each partition, once within the target's dedupe window, and exactly
// from where it stopped.
//
// It reads no stream, chooses no topics and prints nothing: its callers do.
//
// # How it resumes
//
// Each copy has the header ##origin, which names its source: cluster, topic id, partition, sequence.
// The log of the target is therefore the record of the progress, and it cannot disagree with
// what is stored. A partition that begins anew, or whose last put has no answer, reads the target's
// log from the last place that it knows. A saved State only makes that short.
//
// # Logs that go back
//
// A log that is restored from a backup, or continues after an unclean recovery, has lost messages, and other
// ones get their sequences. So a message is named by its sequence and its time of publication (##origin_time).
// Of the source a partition also keeps a mark, the chain of checksums up to Next. If the mark differs or the
// source ends before Next, Rewind compares the originals with the copies and makes the first message that
// differs the next one. Of the target it looks again and again whether the newest copy is still there (Verify).
// A target that went back may have kept copies of a history that the source has lost: after each reading of the
// target's log the newest copy is compared with its original (Holds), when the source has its sequence.
//
// # Invariants
//
//  1. A partition has one put in flight. The next one goes out when it is known that the one before
//     is committed: answered so, or found in the target's log.
//  2. A put without an answer is repeated only if the target's log does not have it. If it is committed
//     later, the target recognises the repeat by the origin of its first message, within the dedupe
//     window of the topic; then the log is read again, and what is missing follows. After the window,
//     or while the target has brokers below feature level 6, its messages, at most one batch, are there
//     twice.
//  3. A segment maps only messages that were read from the target, or whose put was answered.
//  4. A channel of the target finishes copies whose source the channel of the source has finished, from its
//     position on up to the first message that is no copy.
//
// # Goroutines
//
// The package starts none. One goroutine copies with a Partition; the methods without a context may be called by any.
package copier
