// Package rpc carries frames and calls between the brokers of one cluster over
// TCP: framed, multiplexed, pipelined, authenticated.
//
// It knows nodes, incarnations, classes of traffic and bytes. It does not know
// topics, partitions, epochs or etcd, it stores nothing, and it repeats nothing:
// whoever sends decides what a loss means.
//
// Each broker dials every other one. Frames and requests travel on the
// connection their sender dialled; the answer to a request travels back on the
// connection it came in on. So a pair of brokers that talk has two connections,
// and "up" means that both stand and that the peer was heard lately.
//
// # Invariants
//
//  1. Frames of one priority from one peer arrive in the order they were sent,
//     whole and once, or the connection is broken; Send refuses (ErrDown,
//     ErrWindow) what it does not queue.
//  2. Send never blocks and never waits for a socket. Its header is encoded
//     before it returns; payload slices are handed to the socket as they are and
//     must never change.
//  3. Handler.Peer and Handler.Frame of one peer never overlap. A peer is
//     reported up before its first frame, and down before it comes back with
//     another incarnation.
//  4. A waiting replica or control frame goes out before a forward frame, that
//     before a relay frame, and all before bulk. What this process has already put before it
//     is at most one write: a piece (256 KiB) of each lower priority.
//  5. "Refused" is reported only for an incarnation this process was connected
//     to, when both connections have ended and its address refuses the redial.
//  6. Nothing a peer sends can make this process panic or take memory without
//     bound: the handshake takes frames of 4 KiB, a connection one unfinished
//     frame per priority.
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
//	     5    3 zero
//	     8    4 header length h (0 in kinds 4 and 5)
//	    12    4 payload bytes of the whole frame (0 in kind 4)
//	    16    4 payload bytes that follow here, p
//	    20    4 CRC-32C of bytes 0 to 19 and of the header
//	    24    h header
//	  24+h    p payload, not covered by the crc: batches carry their own
//
// A frame whose payload is longer than 256 KiB is cut: the first piece is of its
// own kind and tells the whole length, the others are of kind 4 and the same
// class. Pieces of one priority never mix; pieces of different ones may.
//
// # Headers
//
// Structs are msgpack arrays of their fields in order of declaration; a field is
// only ever added at the end; a reader ignores elements it does not know and
// leaves fields it was not sent at zero. A class may have headers that encode
// themselves (Marshal), as the replicas' messages do.
//
//	request   [id, method, milliseconds the caller waits]; payload: the argument
//	response  [id, code, class, text]; payload: the result, if code is 0
//	hello     [[cluster, node, incarnation, version, features], to, nonce, padding]
//	proof     [32 bytes]
//	refusal   [text]
//
// # Handshake
//
//	dialler  → hello{own identity, whom it means to reach, nonce}
//	acceptor → hello{own identity, "", nonce}      or refusal
//	dialler  → proof                               or refusal
//	acceptor → proof                               or refusal
//
// A proof is HMAC-SHA-256 under the cluster token over the side's name, both
// hello headers and, under TLS, a value exported from the TLS session: the token
// never travels, a proof fits one conversation only, and neither side can be
// told another identity than the one proved. Versions that differ by at most 1
// work together. Hellos are padded to be longer than a packet, so that a path on
// which large ones are lost counts as none. Without TLS, the handshake proves who dialled; it does not hide
// or seal what follows.
//
// # Liveness
//
// Both sides of every connection send a heartbeat when nothing else was sent
// within 50 ms. A peer not heard for 500 ms is reported down, and up again when
// it is heard; a connection silent for 1 s is closed and dialled again. A closed
// connection is dialled again at once, then every 20 to 500 ms with jitter. A
// process that finds that it was itself stopped gives its peers the same 500 ms
// before it calls them silent.
//
// # Goroutines
//
//	accept   1            owns the listener
//	watch    1            closes silent connections, reports silence
//	link     1 per peer   dials; reads the dialled connection
//	reader   1 per accepted connection
//	writer   1 per connection
//	serve    1 per request being served, bounded per connection
//
// All are started by the Transport and awaited by Close.
package rpc
