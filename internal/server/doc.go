// Package server owns the listening sockets of a broker and every client
// connection on them: TCP for the NSQ protocol, HTTP, HTTPS, and the separate
// port of the lookup API.
//
// It does not know what is said on them; protocol.Handler and http.Handlers
// do.
//
// # Invariants
//
//  1. Listen binds every address or none.
//  2. Stop returns when every goroutine that Start began, and every connection,
//     has ended.
//  3. Nothing is accepted before Start: handlers may be built with the ports
//     that Listen got.
//  4. No more connections are held than Options allow: it is clients that are
//     refused when files run out, not the disk's owner.
package server
