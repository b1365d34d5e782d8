// Package lookup registers a broker's topics with external nsqlookupd daemons, over their TCP protocol V1.
//
// The brokers implement the lookup API themselves; this package is for sites that keep their nsqlookupds. It does not
// decide which topics are registered: it makes the registrations at each nsqlookupd equal to Options.Topics.
//
// # Goroutines
//
// One per nsqlookupd, started by New or SetAddresses, ended by SetAddresses or Close, which wait for it. It owns the
// connection.
//
// # Invariants
//
//  1. The registrations that were sent on a connection are exactly the peer's `registered` set. After an error the
//     connection is closed and the set is cleared.
//  2. A daemon that does not answer delays no other one: every exchange has a deadline.
//  3. A daemon is not trusted: the number of daemons, the size of their answers and the channels that they name are
//     bounded, and no answer directs a request elsewhere.
package lookup
