// Package protocol speaks the NSQ TCP protocol V2 to one client at a time: it
// parses commands, turns puts into encoded batches, and writes answers,
// heartbeats and messages.
//
// It does not listen (internal/server does), stores nothing, and knows no
// partition, leader or replica: everything behind the socket is reached through
// the interfaces of internal/edge.
//
// # Goroutines
//
// A connection has two. The reader (the goroutine that calls Serve) parses and
// hands puts over without waiting for their fate. The writer owns the order of
// the answers, the heartbeats and the pulling of messages. They meet in the
// fifo (answers, in the order of the commands) and in a few atomics.
//
// # Invariants
//
//  1. Each command that owes an answer gets exactly one, in the order of the
//     commands; heartbeats and messages may come between.
//  2. OK to a put is written only after the Publisher reported it committed.
//  3. The reader never waits for a commit, only for room in the bounded fifo,
//     for the Publisher's admission, and at IDENTIFY.
//  4. A message is pulled only if the client has credit: in flight < RDY.
//  5. The socket is written by whoever holds output.mu; an upgrade to TLS or a
//     compressed stream happens under it, with nothing else unanswered.
//  6. After a fatal error nothing more of the client's input is acted upon.
package protocol
