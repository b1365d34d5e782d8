// Package tcp implements the server side of the NSQ TCP protocol V2 for one client at a time: it parses commands,
// encodes puts into batches, and writes answers, heartbeats and messages.
//
// It does not listen (internal/frontend/listen does) and stores nothing. It has no notion of partitions, leaders and
// replicas: the interfaces of internal/api are its only way to the broker.
//
// # Goroutines
//
// A connection has two. The reader is the goroutine that calls Serve. It parses commands and passes puts to the
// Publisher without waiting for their outcome. The writer writes the answers in order, sends the heartbeats and pulls
// messages. They share the fifo (answers, in the order of the commands) and a few atomics.
//
// # Invariants
//
//  1. Each command with an answer gets exactly one, in the order of the commands; heartbeats and messages may come
//     between.
//  2. OK to a put is written only after the Publisher has reported it committed.
//  3. The reader never waits for a commit. It waits only for room in the bounded fifo, for the Publisher's admission,
//     and at IDENTIFY.
//  4. A message is pulled only if the client has credit: in flight < RDY.
//  5. Only the holder of output.mu writes to the socket. An upgrade to TLS or to a compressed stream happens under it,
//     while no other answer is outstanding.
//  6. After a fatal error the broker runs no further command of the client.
package tcp
