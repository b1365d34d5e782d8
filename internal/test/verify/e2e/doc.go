// Package e2e proves the promises with the built binaries: brokers as processes
// on loopback, go-nsq as the client, SIGKILL, SIGSTOP and SIGTERM as the faults.
// Its tests are in the packages below it, one for each theme, so that each runs alone within a
// minute. Package e2etest starts the brokers and their clients; package history judges what the clients saw.
//
// It does not cut power (the crashing disk of internal/vfs does) and does not
// explore orders of events (internal/test/verify/sim does).
//
// Rules of every test:
//
//  1. A free range of ports below the ephemeral ones, never the defaults.
//  2. A data directory of its own; LOCKSTEP_KEEP=DIR keeps it and the logs.
//  3. No broker outlives the test, nor the test binary.
//  4. It waits for conditions. A duration is asserted only where it is promised:
//     half of the faults of a kind within LOCKSTEP_SLACK (default 3) times the
//     promise, each within a second more. The figures are always printed.
//
// LOCKSTEP_LONG=1 runs more rounds; LOCKSTEP_RACE=1 builds the brokers with the
// race detector; LOCKSTEP_BINARIES=DIR takes those of a directory. Without the binaries (-short) everything here is skipped.
package e2e
