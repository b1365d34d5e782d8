// Package bounds keeps HTTP requests within the memory of their client (package budget): their bodies until they are
// answered, and their answers until they are read.
//
// It knows no route and no user: internal/httpapi gives the share of a request, and writes the refusals.
//
// # Invariants
//
//  1. A large answer is written only with memory reserved for it. If there is none, the client gets the reason, as long as the
//     answer has not begun.
//  2. A status is not sent before it is known that there is memory for the first bytes behind it.
//
// # Goroutines
//
// None.
package bounds
