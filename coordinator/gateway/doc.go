// Package gateway lets any broker serve any topic. It forwards puts for partitions that are led elsewhere, and relays
// subscriptions on channels that are served elsewhere. It implements api.Publisher, api.Subscribers and api.Receipts
// over the Core (the partitions of this broker and the watched metadata) and a transport to the other brokers.
//
// It elects no leader, stores nothing, and has no sockets of clients. It never invents an outcome: the answer "not
// stored" is given only if no attempt of a put can have been written. Package outcome has the table of the answers,
// package wire the frames between the gateways of two brokers.
//
// # Invariants
//
//  1. Publish never blocks. Each Answerer is called exactly once, at the latest after the put limit, also at Close.
//  2. A put has the same partition and request id in all attempts, so the leader recognises a repeat.
//  3. A put has at most one attempt in progress. An attempt that ended without a definite "not written" stays in doubt.
//     While an attempt is in doubt, the only answers to the put are committed and in doubt.
//  4. Puts of one partition are proposed in the order in which they were published, unless one of them is retried.
//  5. The header room of a draft is used by at most one Propose. Forwarded bytes never include it. Later Proposes get a
//     clone.
//  6. A finish, requeue or touch is first checked against the edge's own table of the
//     deliveries that the client holds, then sent to the leader.
//  7. A stream's deliveries that are neither finished, requeued nor timed out never exceed its credit. The credits of
//     one subscription sum to at most max(ready, partitions), plus the number that its client finishes in 5 ms, which
//     counts up to ready. The client holds at most ready.
//  8. The deliveries that wait for a client, or are being written to it, count against its share of the memory
//     (SubscribeRequest.Memory). If memory is short, deliveries return to the leader unseen, and the credit of their
//     stream shrinks to what it has. A waiting delivery keeps no other message in memory.
//  9. A broken connection between brokers is not a client's disconnect: the messages that the client holds stay in
//     flight to it for the reclaim time, and their attempts do not increase.
//
// # Goroutines
//
//	keeper   1, retries parked puts, gives up late ones, attaches subscriptions again
//	sender   1, sends puts, answers and verbs to the gateways of other brokers
//	session  1 for each broker with streams here (relaySession): pulls and sends their deliveries
//
// New starts the first two. The first opening from a broker starts its session. Close ends all and waits for them. Any
// other work is done in the goroutine of the caller: a client's reader or writer, a reader of rpc, the holder of a run
// lock.
package gateway
