// Package consume subscribes for clients that consume by HTTP requests and have no connection of their own.
//
// A session is the subscription of one client to one channel. The first poll opens it; later polls of the same client
// use it. A poll takes messages from it, and gives each a receipt, with which any broker finishes, requeues or touches
// the delivery. A stream is a session with one long answer.
//
// It parses and writes no HTTP (internal/frontend/httpapi does), and stores nothing. internal/api is its only way to
// the cluster.
//
// # Limits
//
// The number of sessions is bounded, in total, for each address (IPv6: /64) and for each user. A session has at most
// Request.MaxInFlight messages in flight. The messages of one answer are at most answerBytes, or one message. All
// messages that wait for a client or are being written count against the share of its user, or of its address (package
// limits).
//
// # Invariants
//
//  1. A session grants credit only while a poll waits, and for lingerTime after it: so a client that does not request
//     messages withholds none from other consumers.
//  2. Without polls and receipts for the time of its message timeout, a session ends. Its messages in flight wait for
//     their timeouts.
//  3. A message is in flight from the moment when a poll takes it. If its answer cannot be written, it is requeued
//     (--requeue-on-disconnect). After its timeout it is not written.
//  4. A receipt names one delivery, and a session. If the session is here and this broker leads the partition, the
//     session settles the receipt; otherwise the leader of the message does, and success is answered after it has. So a
//     receipt stays valid after the death of the broker that answered the poll. No client can settle another client's
//     delivery with it, not even a client that shares its session.
//  5. After Stop no poll waits, and no session is left.
//
// # Goroutines
//
// None. The end of a session runs on a timer.
package consume
