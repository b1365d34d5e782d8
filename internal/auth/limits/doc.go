// Package limits bounds what clients may use of a broker: memory, seats, publish rates. A Budget bounds the memory that clients
// make a broker hold: bodies that arrive, puts and answers that wait, messages that a client does not read. One Budget has all of
// it; docs/ARCHITECTURE.md lists the buffers.
//
// A user, or an address whose client has not logged in, has a share. The share grows up to half of the memory that is still free:
// a single client gets a third of a budget. So memory is left for the next client, and no part is reserved idle for others. The
// share shrinks as others take theirs: a client that gives memory back may not get it again.
//
// The package does not allocate: it counts bytes.
//
// # Limits
//
// The first Free bytes of a body, and of what waits for one connection, are not counted: most clients need only those, and the
// number of connections bounds them.
//
// # Invariants
//
//  1. The reserved bytes never exceed the size of the budget.
//  2. A share that has nothing gets what fits into the free memory. Any other share never grows beyond half of what is free.
//  3. Reservations of one share are granted in the order in which they were asked for, so that a large one is not overtaken for
//     ever. Shares do not wait for each other.
//  4. A reservation is given back to the share that it was made for.
//
// # Goroutines
//
// None; Rates and a Budget have locks, a Crowd has none.
package limits
