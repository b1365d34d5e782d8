// Package txn performs compare-and-swap transactions on the metadata: those of the replication machines (Proposer), and
// single attempts to change keys after reading them (Try). KeyedLock serialises the changes of one broker.
//
// It decides nothing about replication: a machine provides the new value, the proposer adds the compares. It has no copy of
// the metadata.
//
// # Invariants
//
//  1. A transaction of the proposer compares each partition's ModRevision and the proposer's own incarnation. Without a
//     registration it writes nothing.
//  2. A lost answer never means failure: the machine receives Unknown, and the key is read until the store answers. An
//     unchanged revision proves nothing; the machine accounts for that.
//  3. Each proposal is answered by one replica.CASDone, unless the proposer is stopped.
//
// # Goroutines
//
//	proposer    16, one transaction at a time each; started by NewProposer, end at Stop
//	unresolved   1, reads the keys of lost answers; likewise
package txn

import (
	"errors"
	"time"
)

const (
	// Timeout bounds one transaction. It is short because etcd drops the requests in progress when its leader dies: a
	// new leader answers after 0.3 to 0.4 s, but the dropped requests are never answered. The watch reports late
	// effects.
	Timeout = 200 * time.Millisecond
	// RequestTimeout bounds a request that is not repeated at once.
	RequestTimeout = 2 * time.Second
	// Retry is the pause before a transaction or a call is retried.
	Retry = 50 * time.Millisecond
	// putTimeout is the time that each put adds to the limit of a large transaction.
	putTimeout = time.Millisecond
)

// ErrCompare means that a compare of the transaction did not hold: nothing was written.
var ErrCompare = errors.New("txn: a compare of the transaction failed")
