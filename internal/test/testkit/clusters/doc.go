// Package clusters holds helpers of the tests with real brokers: packages of e2e (processes on
// loopback) and chaos (each broker in a network namespace). No product package imports it.
// It does not start, stop or judge a cluster; e2e and chaos do that, each in its own way.
//
// # Invariants
//
//  1. No function waits or retries; its caller does.
package clusters
