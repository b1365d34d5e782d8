// Package txn carries out compare-and-swap transactions on the metadata: those of the
// replication machines (Proposer), one attempt at a change of keys that were read (Try),
// and what keeps the changes of one broker apart (KeyedLock).
//
// It decides nothing about replication: a machine says what is to be written, the
// proposer says under which compares. It keeps no copy of the metadata.
//
// # Invariants
//
//  1. A transaction of the proposer compares each partition's ModRevision and the
//     proposer's own incarnation. Without a registration it writes nothing.
//  2. An answer that was lost is never taken for "no": the machine gets Unknown, and the
//     key is read again until the store answers. A revision that did not move proves
//     nothing; the machine accounts for that.
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
	// Timeout bounds one transaction. It is short because etcd forgets what was under way
	// when its leader died: etcd is back after 0.3 to 0.4 s, and an answer that has not
	// come by then never comes. The watch reports what lands later.
	Timeout = 200 * time.Millisecond
	// RequestTimeout bounds one request that is not repeated so soon.
	RequestTimeout = 2 * time.Second
	// Retry is the pause before a transaction, or a call, is tried again.
	Retry = 50 * time.Millisecond
	// PutTimeout is what each put of a large transaction adds to its time.
	PutTimeout = time.Millisecond
)

// ErrCompare means that a compare of the transaction did not hold: nothing was written.
var ErrCompare = errors.New("coordinator: a compare of the transaction failed")
