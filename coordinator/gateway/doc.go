// Package gateway lets any broker serve any topic: it takes puts for partitions
// that are led elsewhere and forwards them, and it opens subscriptions on
// channels that are served elsewhere and relays them. It implements
// edge.Publisher and edge.Subscribers over the Core (the partitions of this
// broker and the watched metadata) and a Transport to the other brokers.
//
// It does not decide who leads, does not store, and does not know sockets of
// clients. It never invents an outcome: "not stored" is said only when no
// attempt of a put can have been written.
//
// # Invariants
//
//  1. Publish never blocks. Each Answerer is called exactly once, at the latest
//     after the put limit, also at Close.
//  2. A put keeps its partition and its request id over all attempts, so the
//     leader recognises a repeat.
//  3. A put has at most one attempt under way. An attempt that ended without a
//     definite "not written" stays a doubt of the put; with a doubt left the put
//     is answered committed or in doubt, nothing else.
//  4. Puts of one partition are proposed in the order they were published,
//     unless one of them is retried.
//  5. The header room of a draft is given to at most one Propose. Forwarded
//     bytes never include it. Later Proposes get a clone.
//  6. A finish, requeue or touch is judged first against the edge's own table of
//     what this subscription holds, then sent to whoever leads.
//  7. A stream's deliveries that are neither finished, requeued nor timed out
//     never exceed its credit; the credits of one subscription sum to at most
//     max(ready, partitions), and as much again as its client finishes in 5 ms,
//     at most ready. The client holds at most ready.
//  8. A broken link is not a client's disconnect: what the client holds stays
//     its own for the reclaim time and the attempts do not grow.
//
// # Frames
//
// The header of a frame is forwardHeader or relayHeader. The payload begins with a
// table of Count fixed records; what the records describe follows in the same
// order. All integers are little-endian.
//
// ClassForward, puts: 52 bytes a record; then for each put 80 zero bytes (room
// for the batch header, so that the leader seals in place) and its payload.
//
//	offset size field
//	     0    8 request id: producer
//	     8    8 request id: n
//	    16    8 topic id
//	    24    8 epoch the sender believes in (a hint)
//	    32    4 attempt, echoed in the answer
//	    36    4 message count
//	    40    4 payload crc
//	    44    4 payload length, without the header room
//	    48    2 partition
//	    50    2 zero
//
// ClassForward, answers: 40 bytes a record.
//
//	offset size field
//	     0    8 request id: producer
//	     8    8 request id: n
//	    16    8 topic id
//	    24    8 first sequence (committed, duplicate)
//	    32    4 attempt
//	    36    2 partition
//	    38    1 outcome (replica.Outcome)
//	    39    1 zero
//
// ClassRelay, deliveries: 56 bytes a record; then for each its header and body.
//
//	offset size field
//	     0    8 stream
//	     8    8 sequence
//	    16    8 epoch
//	    24    8 time, unix ns
//	    32    8 trace id
//	    40    4 header length
//	    44    4 body length
//	    48    2 attempts
//	    50    6 zero
//
// ClassRelay, verbs (and the list of held deliveries in an opening): 32 bytes a
// record.
//
//	offset size field
//	     0    8 stream
//	     8    8 sequence
//	    16    8 argument: delay in ms (−1: the client never saw it, −2: it has left,
//	            −3: likewise, and the message waits for its timeout), credit, attempts held, how it closes
//	    24    4 epoch, low 32 bits of the one it was delivered in
//	    28    1 verb: 1 finish, 2 requeue, 3 touch, 4 held, 5 credit, 6 close;
//	            from the leader 7 taken back, 8 gone, 9 deleted, 10 missing;
//	            16 is added to 1–3 when the leader refused
//	    29    3 zero
package gateway
