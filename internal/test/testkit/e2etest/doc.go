// Package e2etest is the harness of the tests in internal/test/verify/e2e: it starts brokers as processes on loopback,
// ends and hangs them, and runs producers and consumers whose history package history judges. It
// holds nothing that only one of those packages uses. Package e2e has the rules of the tests.
//
// # Invariants
//
//  1. No process and no goroutine outlives the test that started it: Main checks the goroutines.
//  2. Only the test's own goroutine calls the methods of a Cluster, except for the addresses, which never change.
//  3. Two tests that run at the same time never have the same ports.
//  4. Paths of the repository begin with Root, which is right only in a package directly below internal/test/verify/e2e.
package e2etest
