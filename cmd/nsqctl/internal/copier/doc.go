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
// log from the last place that it knows. A saved State only makes that short: without one the logs are compared.
//
// # Logs that go back
//
// A log that is restored from a backup, or continues after an unclean recovery, has lost messages, and other
// ones get their sequences. So a message is named by its sequence and its time of publication (##origin_time).
// The target may have copies of several histories of the source, in any order: a put that was under way when a side went back comes
// behind them, or leaves a gap. So no position tells what is copied, and Compare looks for each message of the source.
//
// Three signs lead to a comparison: the source's log differs from that which was copied (its mark, the chain of checksums up
// to Next, and the original of the newest copy: Holds), the newest copy is gone (Verify), or a copy of another history comes
// (Mixed). All logs are read at leaders that serve: after an election a replica does not know yet what is committed.
//
// # Invariants
//
//  1. A partition has one put in flight. The next one goes out when it is known that the one before
//     is committed: answered so, or found in the target's log.
//  2. A put without an answer is repeated only if the target's log does not have it. If it is committed
//     later, the target recognises the repeat by the origin of its first message, within the dedupe
//     window of the topic; then the log is read again, and what is missing follows. After the window,
//     its messages, at most one batch, are there twice.
//  3. A segment maps only messages that were read from the target, or whose put was answered.
//  4. A channel of the target finishes copies whose source the channel of the source has finished, from its
//     position on up to the first message that is no copy.
//
// # Goroutines
//
// The package starts none. One goroutine copies with a Partition; the methods without a context may be called by any.
package copier
