package queue

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Confirm is one version of the channel state: a delta that applies at N-1, or
// a snapshot. (E, 1) is always a snapshot.
type Confirm struct {
	Epoch ident.Epoch
	N     uint64
	Full  bool
	Delta []byte
}

// WriteKind says what a Write does. The numbers are in the journal.
type WriteKind uint8

// The kinds of writes.
const (
	// WriteAppend adds Batches at the end.
	WriteAppend WriteKind = 1
	// WriteEpoch promises Epoch: no lower one is answered any more.
	WriteEpoch WriteKind = 2
	// WriteReset is RB-4 in one record: promise Epoch, truncate to At, append
	// the marker in Batches. An ordinary election uses it with At = end.
	WriteReset WriteKind = 3
	// WriteTruncate cuts the log to At.
	WriteTruncate WriteKind = 4
	// WriteConfirm keeps a version of the channel state.
	WriteConfirm WriteKind = 5
	// WriteCommitted notes a committed end; a hint for recovery, never synced
	// for its own sake.
	WriteCommitted WriteKind = 6
	// WriteRestart begins the log afresh at At: everything before is forgotten
	// (a replica behind the leader's first retained offset).
	WriteRestart WriteKind = 7
)

// Write is one journal record. All writes of one Effects go into one
// submission, in order.
type Write struct {
	Kind    WriteKind
	Epoch   ident.Epoch
	At      ident.Position
	PrevCRC uint32 // of writes with At: the checksum the chain continues from there
	Batches []Batch
	Confirm Confirm
}

// Restored is what the store found on disk.
type Restored struct {
	Epoch          ident.Epoch // promised
	End            ident.Position
	LastCRC        uint32
	KnownCommitted ident.Position // a lower bound, ≤ End
	Epochs         []commitlog.EpochEnd
	Recent         []RecentPut // of the newest batches, oldest first
	Confirm        Confirm     // version of the channel state in the Register
	LastTimeNS     int64
}

const (
	// RecentPuts of each producer are recognised when they come again: twice as
	// many as one lets a put without an answer fall behind, for those between may
	// come again too.
	RecentPuts = 4096
	// RecentNS is when a put is forgotten at the latest, in ns. No edge retries
	// longer than its put limit (9 s).
	RecentNS = 30e9
)

// RecentPut is a request id in the log, for the recognition of repeats.
type RecentPut struct {
	Request ident.RequestID
	First   ident.Sequence
	Count   uint32
	End     ident.Position
	TimeNS  int64
}
