// Package catalog is the watched metadata as one broker has it: topics, partitions,
// channels, brokers, registrations.
//
// It reads no key itself and writes none: the watch hands it each change (Apply). It may
// be behind the metadata store for as long as the watch is. A reader that must not be
// behind reads the key (package txn).
//
// # Invariants
//
//  1. One goroutine applies changes, that of the watch; any goroutine reads.
//  2. Values are replaced, never changed in place: a returned value may be kept.
//  3. A key that cannot be decoded leaves the state as it was, and is logged.
//  4. The channel that Changed returns is closed after the change that it announces can
//     be read.
//
// It starts no goroutine.
package catalog
