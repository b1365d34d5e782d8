package queue

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// StateVersion is one version of the channel state: a delta that applies to version N−1, or a
// snapshot (Full). The first version of an epoch, (E, 1), is always a snapshot.
type StateVersion struct {
	Epoch ident.Epoch
	N     uint64
	Full  bool
	Delta []byte
}

// WriteKind is the kind of a Write. The numbers are on disk, in the journal: append only.
type WriteKind uint8

// The kinds of writes.
const (
	// WriteAppend appends Batches.
	WriteAppend WriteKind = 1
	// WriteEpoch promises Epoch: the replica no longer answers lower epochs.
	WriteEpoch WriteKind = 2
	// WriteReset is RB-4 in one record: it promises Epoch, truncates the log to At, and appends the
	// marker in Batches. An ordinary election uses it with At at the end of the log.
	WriteReset WriteKind = 3
	// WriteTruncate cuts the log to At.
	WriteTruncate WriteKind = 4
	// WriteState stores a version of the channel state.
	WriteState WriteKind = 5
	// WriteCommitted records a committed end. It is a hint for recovery and never causes a sync of its own.
	WriteCommitted WriteKind = 6
	// WriteRestart empties the log, which then begins at At, because the replica is behind the leader's first retained
	// offset.
	WriteRestart WriteKind = 7
	// WriteIdentities records Identities. It never causes a sync of its own while puts arrive.
	WriteIdentities WriteKind = 8
)

// Write is one journal record. All writes of one Effects are one submission, in order.
type Write struct {
	Kind    WriteKind
	Epoch   ident.Epoch
	At      ident.Position
	PrevCRC uint32 // of writes with At: the checksum from which the chain continues there
	Batches []Batch
	State   StateVersion

	Identities IdentityMark
}

// Restored is the state of a replica that the store found on disk.
type Restored struct {
	Epoch          ident.Epoch // promised
	End            ident.Position
	LastCRC        uint32
	KnownCommitted ident.Position // a lower bound, ≤ End
	Epochs         []commitlog.EpochEnd
	Recent         []RecentPut  // of the newest batches, oldest first
	State          StateVersion // version of the channel state in the register
	LastTimeNS     int64
	Identities     IdentityMark
	Identified     []IdentifiedPut // from Identities.From on, oldest first
	IdentitiesLost bool            // some of them could not be read
}

// RecentPuts is the number of puts of each producer whose repeats are recognised. It is twice the number
// of puts that a producer may send after an unanswered one, because those may also be repeated.
const RecentPuts = 4096

// RecentPut is a request id in the log, by which a repeat is recognised.
type RecentPut struct {
	Request ident.RequestID
	First   ident.Sequence
	Count   uint32
	End     ident.Position
}
