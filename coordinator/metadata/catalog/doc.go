// Package catalog is one broker's copy of the watched metadata: topics, partitions, channels, brokers, registrations.
//
// It reads and writes no key itself: the watch passes each change to Apply. It lags behind the metadata store as much as the
// watch does. A reader that needs the present state reads the key (package txn).
//
// # Invariants
//
//  1. One goroutine applies changes, the watch's; any goroutine reads.
//  2. Values are replaced, never changed in place: a caller may keep a returned value.
//  3. A key that cannot be decoded leaves the state as it was, and is logged.
//  4. The channel that Changed returns is closed after the change can be read.
//
// It starts no goroutine.
package catalog
