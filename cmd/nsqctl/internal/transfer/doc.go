// Package transfer has the commands of nsqctl that copy topics from one Lockstep cluster to another: export and import
// with a stream between them (internal/api/msgstream), and mirror, which runs until it is stopped. The source of a mirror has
// addresses and credentials of its own; the target's are not sent there.
//
// # How a copy resumes
//
// A copier copies one partition in its order, once within the target's dedupe window, and exactly from where it stopped. Each
// copy has the header ##origin, which names its source: cluster, topic id, partition, sequence. The log of the target is
// therefore the record of the progress, and it cannot disagree with what is stored. A partition that starts again, or whose
// last put has no answer, reads the target's log from its last known place. A saved state only shortens that: without one
// the logs are compared.
//
// # Logs that go back
//
// A log that is restored from a backup, or continues after an unclean recovery, has lost messages, and other messages get
// their sequences. So a message is named by its sequence and its time of publication (##origin_time). The target may have
// copies of several histories of the source, in any order: a put that was in flight when a side went back follows them,
// or leaves a gap. So no position shows which messages are copied, and compare searches for each message of the source.
//
// Three signs lead to a comparison: the source's log differs from the log that was copied (its mark, the chain of checksums up
// to Next, and the original of the newest copy: sourceHas), the newest copy is missing (verify), or a copy of another history
// arrives (mixed). All logs are read at leaders that serve: after an election a replica does not know yet what is committed.
//
// # Invariants
//
//  1. Import reads the whole stream before its first put: a stream that is torn or altered publishes nothing.
//  2. An export to a file leaves the old file, or the whole new one.
//  3. A partition has one put in flight. The next one goes out when the one before is known to be committed: it was answered
//     so, or found in the target's log.
//  4. A put without an answer is repeated only if the target's log does not have it. If it is committed later, the target
//     recognises the repeat by the origin of its first message, within the dedupe window of the topic; then the log is read
//     again, and what is missing follows. After the window its messages, at most one batch, are there twice.
//  5. A segment maps only messages that were read from the target, or whose put was answered.
//  6. A channel of the target finishes only copies whose source the channel of the source has finished, from its position up
//     to the first message that is not a copy. It never moves back, and keeps its own deferred messages: its leader does that
//     in one step (POST /v1/channel/finish).
//  7. The state file of a mirror makes a start shorter. Without it the mirror finds the position in the target's log.
//
// # Goroutines
//
// The command's goroutine owns an export, an import and a mirror. A mirror has a goroutine for each partition that it
// copies, and one that serves its metrics; all end before the command does.
package transfer
