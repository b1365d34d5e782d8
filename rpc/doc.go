// Package rpc carries frames and calls between the brokers of one cluster over TCP: framed,
// multiplexed, pipelined, authenticated.
//
// It handles nodes, incarnations, classes of traffic and bytes, and has no concept of topics, partitions, epochs or
// etcd. It stores nothing and repeats nothing: the sender handles losses.
//
// Each broker dials every other one. Frames and requests travel on the connection that their sender dialled; the answer
// to a request returns on the connection of the request. So a pair of brokers has two connections, and "up" means that
// both are established and that bytes of the peer have arrived recently.
//
// # Invariants
//
//  1. Frames of one priority from one peer arrive in the order they were sent, complete and once, or
//     the connection breaks. Send refuses a frame (ErrDown, ErrWindow) or queues it.
//  2. Send never blocks and never waits for a socket. Its header is encoded before it returns;
//     payload slices are written to the socket as they are and must never change.
//  3. Handler.Peer and Handler.Frame of one peer never overlap. A peer is reported up before its
//     first frame, and down before it comes back with another incarnation.
//  4. A waiting replica or control frame is sent before a forward frame, a forward frame before a relay frame, and all
//     before bulk. At most one write of lower priorities is ahead of a frame: a piece (256 KiB) of each.
//  5. "Refused" is reported only for an incarnation to which this process was connected, when both
//     connections have ended and its address refuses the redial.
//  6. Nothing that a peer sends can make this process panic or use unbounded memory: the handshake takes frames of 4
//     KiB, a connection one unfinished frame per priority. A request beyond the limit of its method is refused before
//     memory is allocated for it, a response before it is decoded.
//  7. When too many connections are in their handshake, the oldest of them is closed; they never
//     displace the connection of a broker. Refusals write a bounded number of log lines.
//  8. Between two brokers of this build no changed byte is delivered: a piece that does not match its checksum breaks
//     the connection, which is counted and logged. Batches carry checksums of their own, which are checked again before
//     they are stored; headers, finishes, outcomes, calls and their results do not.
//
// # Frame, all integers little-endian
//
//	offset size field
//	     0    2 magic "LF"
//	     2    1 format version, 2
//	     3    1 kind: 1 frame, 2 request, 3 response, 4 rest of a frame,
//	            5 heartbeat, 6 hello, 7 proof, 8 refusal
//	     4    1 class: 1 replica, 2 forward, 3 relay, 4 control, 5 bulk;
//	            0 in kinds 5 to 8
//	     5    1 flags: 1 = the checksum of the payload follows at 24
//	     6    2 zero
//	     8    4 header length h (0 in kinds 4 and 5)
//	    12    4 payload bytes of the whole frame (0 in kind 4)
//	    16    4 payload bytes that follow here, p
//	    20    4 CRC-32C of bytes 0 to 19, of the checksum at 24 and of the header
//	    24    4 CRC-32C of the p payload bytes (only with flag 1)
//	          h header
//	          p payload
//
// Flag 1 is set in every piece with payload bytes if both sides have bit 63 of the features in their
// hello, and in no other.
//
// A frame whose payload is longer than 256 KiB is cut: the first piece has the frame's kind and whole length, the
// others have kind 4 and the same class. Pieces of one priority never mix; pieces of different ones may.
//
// # Headers
//
// Structs are msgpack arrays of their fields in order of declaration. A field is only ever added at the end; a reader
// ignores further elements and leaves missing fields at zero. A class may have headers that encode themselves
// (Marshal), as the replicas' messages do. wire_test.go has golden bytes.
//
//	request   [id, method, milliseconds the caller waits]; payload: the argument
//	response  [id, code, class, text]; payload: the result, if code is 0
//	hello     [[cluster, node, incarnation, version, features], to, nonce, padding]
//	proof     [32 bytes]
//	refusal   [text]
//
// # Handshake
//
//	dialler  → hello{own identity, the node that it dials, nonce}
//	acceptor → hello{own identity, "", nonce}      or refusal
//	dialler  → proof                               or refusal
//	acceptor → proof                               or refusal
//
// A proof is HMAC-SHA-256 under the cluster token over the side's name, both hello headers and, under TLS, a value
// exported from the TLS session. So the token never travels, a proof fits one conversation only, and neither side can
// claim another identity than it proves. Under TLS both sides check that the other's certificate belongs to the node of
// its hello (Identity). Each side refuses a broker that is not registered, or was registered again since. Versions that
// differ by at most 1 work together. Hellos are padded to be longer than a packet, so that a path that loses large
// packets does not count as usable. Without TLS, the handshake proves the identities, but the bytes after it are
// neither encrypted nor authenticated.
//
// # Liveness
//
// Both sides of every connection send a heartbeat when nothing else was sent within 50 ms. A peer that is silent for
// 500 ms is reported down, and up again when bytes of it arrive; a connection silent for 1 s is closed. A closed
// connection is dialled again at once, then every 20 to 500 ms with jitter. A process that detects that it was itself
// suspended gives its peers the same 500 ms before they count as silent.
//
// # Goroutines
//
//	accept   1            owns the listener
//	watch    1            closes silent connections, reports silence
//	dialler  1 per peer   dials; reads the dialled connection
//	reader   1 per accepted connection
//	writer   1 per connection
//	serve    1 per request being served, bounded per connection
//
// All are started by the Transport and awaited by Close.
package rpc
