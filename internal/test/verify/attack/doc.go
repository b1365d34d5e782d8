// Package attack proves that brokers keep attackers out: the attacks of docs/SECURITY.md on
// the built binaries, at every port, on loopback. It holds tests only.
//
// It does not test the single checks (the tests next to the code do), and no fault of disks and
// networks (internal/test/verify/chaos).
//
// Rules of every test:
//
//  1. An attack is made as its author would make it: over the network, without a hook in the
//     broker. Beside it, the same request with credentials shows that the door is there.
//  2. A flood is a process of its own with a bounded rate, from an address of its own. Clients
//     at another address are measured at the same time.
//  3. The 99th percentile of these clients may triple. A flood has three tries, because the
//     machine has other work; the figures of each are printed.
//  4. After an attack the broker answers /readyz with 200, and ends within 10 s of SIGTERM,
//     also while the attacker holds its connections.
//
// LOCKSTEP_LONG=1 makes the floods long (make soak) and prints a table of
// their figures. LOCKSTEP_SLACK multiplies the bounds of durations. Without the
// binaries (-short) everything here is skipped.
package attack
