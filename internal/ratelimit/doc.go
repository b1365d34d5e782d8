// Package ratelimit bounds the publish rate of users and topics at one broker.
//
// A rate is a number of messages and a number of bytes a second; 0 is no limit. Each has a
// token bucket that holds one second's worth, and at least one message. A put takes its
// tokens from both buckets, or none from either.
//
// # Limits
//
// The rates hold for the clients of one broker. Brokers do not add their rates up.
//
// # Invariants
//
//  1. A put that is larger than a bucket passes when the bucket is full, and leaves a debt:
//     no put is refused for ever, and the mean rate holds.
//  2. Without a limit, Allow takes no lock and allocates nothing.
//  3. The map of a Set is bounded. If it overflows, all buckets start full again.
//
// The package starts no goroutine. Its methods may be called by any goroutine.
package ratelimit
