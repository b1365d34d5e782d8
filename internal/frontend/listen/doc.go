// Package listen owns the listening sockets of a broker and every client connection on them: TCP for the NSQ protocol,
// HTTP, HTTPS, and the separate port of the lookup API.
//
// It implements no protocol; tcp.Handler and http.Handlers do.
//
// # Invariants
//
//  1. Listen binds every address or none.
//  2. Stop returns when every goroutine of Start and every connection has ended.
//  3. No connection is accepted before Start, so that handlers can be built with the ports that Listen has bound.
//  4. The number of connections, in total and per address, never exceeds Options. If file descriptors run out, clients
//     are refused; the store never fails to open a file.
//  5. Where clients log in, connections before their login are closed when seats run out, the oldest of the network
//     with the most first. They never displace a client that has logged in.
//  6. A probe is answered while all seats are taken: spare seats serve nothing else. If all are taken, the oldest
//     connection in them is closed.
//
// # Goroutines
//
// Start starts one for each port. One more serves or refuses each TCP connection; those of the HTTP connections are
// net/http's.
package listen
