// Package clitest helps the tests of the commands of nsqctl: it runs a command line and starts fake
// brokers on loopback.
//
// Only tests import it. It has no command: the test gives the root with the commands that it needs.
//
// # Invariants
//
//  1. Each server and each command ends with its test.
package clitest
