// Package limits bounds what clients may use of a broker: memory, connections before the login, publish rates.
//
// A Budget bounds the memory that clients make a broker hold: incoming bodies, waiting puts and answers, messages that
// a client does not read. One Budget covers all of it; docs/ARCHITECTURE.md lists the buffers.
//
// A user, or an address whose client has not logged in, has a share. The share grows up to half of the memory that is still free,
// so a single client gets a third of a budget. Memory is left for the next client, and no part is reserved idle for others. The
// share shrinks as others take theirs: a client that releases memory may not get it again.
//
// The package counts bytes and does not allocate. The first Free bytes of a body, and of one connection's queue, are not counted:
// that is enough for most clients, and the number of connections bounds them.
//
// # Invariants
//
//  1. The reserved bytes never exceed the size of the budget.
//  2. An empty share gets what fits into the free memory. Any other share never grows beyond half of what is free.
//  3. Reservations of one share are granted in the order of the requests, so that small ones do not overtake a large one forever.
//     Shares do not wait for each other.
//  4. A reservation is returned to the share that it was made for.
//
// The package starts no goroutine. Rates and Budget have locks, a Crowd has none.
package limits
