// Package brokerapi asks the HTTP API of the brokers for the commands of nsqctl: one broker, or any
// that answers.
//
// It has no flags and reads no files: the caller sets up the addresses, TLS and the token. It
// prints nothing, and does not know the single requests.
//
// # Invariants
//
//  1. A request that changes something goes to the next broker only if it certainly did not
//     reach the one before. A read-only request is repeated.
//  2. An answer other than 200 is an error with the broker's text.
package brokerapi
