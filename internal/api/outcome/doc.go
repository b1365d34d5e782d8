// Package outcome is the one table of the outcomes of puts, finishes and operations: the number between brokers, the
// error, the text for TCP clients, the HTTP status, the metric's label, and the class for callers.
//
// The package decides nothing: package replica and package engine give the outcomes, package gateway acts on them.
// Every other place derives from the table: the protocol, the HTTP API, the frames and calls between brokers, the
// metrics.
//
// # Invariants
//
//  1. Every exported error of this package, and every Outcome, has exactly one row.
//  2. Outcomes and codes are wire format: a number is never changed and never reused.
//  3. An error whose text has "not stored" is never of the class "in doubt".
//
// # A new outcome
//
// It takes a sentinel and a row in table.go, a line in the test that freezes the numbers, and the code that gives it.
// If it travels in the answers to forwarded puts, it also takes a constant in table.go, and a feature level
// (metadata.Level rises by one): brokers of a cluster below it are answered another outcome.
package outcome
