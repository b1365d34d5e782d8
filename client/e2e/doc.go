// Package e2e tests the Go client with real brokers: three processes on loopback, killed,
// stopped, frozen, restarted together, and cut off from the client. It holds tests only.
//
// The tests take the binaries of LOCKSTEP_BINARIES, or build them. With LOCKSTEP_LONG=1 they run
// more rounds; with -short they are skipped.
package e2e
