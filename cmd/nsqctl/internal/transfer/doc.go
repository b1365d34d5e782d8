// Package transfer has the commands of nsqctl that copy topics from one Lockstep cluster to another: export and import
// with a stream between them, and mirror, which runs until it is stopped.
//
// It publishes no message itself, and keeps no order of its own: cmd/nsqctl/internal/copier does. The stream is that of
// internal/api/msgstream. The source of a mirror has addresses and credentials of its own; those of the
// target are not sent there.
//
// # Invariants
//
//  1. Import reads the whole stream before its first put: a stream that is torn or altered publishes nothing.
//  2. An export to a file leaves the old file, or the whole new one.
//  3. A channel of the target finishes copies alone, never moves back, and keeps its own deferred messages: its
//     leader does that in one step (POST /v1/channel/finish).
//  4. The state file of a mirror makes a start shorter. Without it the mirror finds the place in the target's log.
//
// # Goroutines
//
// The command's goroutine owns an export, an import and a mirror. A mirror has a goroutine for each partition that it
// copies, and one that serves its metrics; all end before the command does.
package transfer
