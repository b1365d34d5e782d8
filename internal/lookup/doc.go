// Package lookup registers a broker's topics with external nsqlookupd daemons,
// over their TCP protocol V1.
//
// The brokers answer the lookup API themselves; this is for sites that keep
// their nsqlookupds. The package does not decide what is registered: it makes
// what each nsqlookupd knows equal to what its Source says.
//
// # Goroutines
//
// One per nsqlookupd, started by New or SetAddresses, ended by SetAddresses or
// Close, which wait for it. It owns the connection.
//
// # Invariants
//
//  1. A connection has been told exactly the peer's `known` set; after any
//     error the connection is closed and the set forgotten.
//  2. A daemon that does not answer delays nobody else: every exchange has a
//     deadline.
package lookup
