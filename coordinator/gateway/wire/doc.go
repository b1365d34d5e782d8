// Package wire encodes the messages between the gateways of two brokers: forwarded puts and their answers (ClassForward
// of package rpc), and the streams of relayed subscriptions (ClassRelay).
//
// It only converts between values and bytes. It sends nothing, keeps no state, starts no goroutine, and does not judge
// a message: the gateway checks that a put, a partition or a stream of a peer exists. All functions may be called from
// any goroutine.
//
// # Invariants
//
//  1. Structs keep their encoding, and numbers their meaning: brokers of different builds run together. New fields are
//     appended; wire_test.go has the golden bytes.
//  2. No bytes from a peer can make the decoder of a header, a table or a delivery panic: it returns ErrFrame or the
//     error of msgpack. The decoders of single records require a record of full length, which Table cuts.
//  3. A decoded delivery shares the memory of its frame. Its header and body have no spare capacity, so an append
//     cannot overwrite the next delivery.
//
// # Frames
//
// The header of a frame is a Header. The payload begins with a table of Count fixed records. The bytes that the
// records describe follow in the same order. All integers are little-endian.
//
// ClassForward, puts: 52 bytes a record; then for each put 80 zero bytes (room for the batch header, so that the leader
// seals in place) and its payload.
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
//	    38    1 outcome (package outcome)
//	    39    1 zero
//
// ClassRelay, deliveries: 64 bytes a record; then for each its header and body.
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
//	    56    8 number of the delivery
//
// ClassRelay, verbs (and the list of held deliveries in an opening): 40 bytes a record.
//
//	offset size field
//	     0    8 stream
//	     8    8 sequence
//	    16    8 argument: delay in ms (−1: the client never saw it, −2: it has left,
//	            −3: likewise, and the message waits for its timeout), credit, how it closes
//	    24    4 epoch, low 32 bits of the one it was delivered in
//	    28    1 verb: 1 finish, 2 requeue, 3 touch, 4 held, 5 credit, 6 close;
//	            from the leader 7 revoked, 8 gone, 9 deleted, 10 missing;
//	            16 is added to 1–3 when the leader refused
//	    29    1 zero
//	    30    2 attempts of the delivery; 0: unknown
//	    32    8 number of the delivery, which its epoch and number name
package wire
