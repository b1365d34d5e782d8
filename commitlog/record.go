package commitlog

import "github.com/lockstepmq/lockstep/internal/ident"

// Record describes one batch: a fixed-size entry of the commit log.
type Record struct {
	Epoch  ident.Epoch
	First  ident.Sequence // base sequence
	Offset ident.Offset   // where the batch begins
	TimeMS int64          // unix ms of the batch
	Size   uint32         // bytes of the batch
	Count  uint32         // messages; 0 for a control batch
	CRC    uint32         // header checksum of the batch
	// PrevCRC is the header checksum of the batch before: the chain of the log at this place, also
	// after retention has removed that batch.
	PrevCRC uint32
	// Identified: messages of the batch have identities (queue.Identity).
	Identified bool
}

// End is the position after the batch.
func (r Record) End() ident.Position {
	return ident.Position{Offset: r.Offset + ident.Offset(r.Size), Sequence: r.First + ident.Sequence(r.Count)}
}

// EpochEnd is the range [Start, End) of the log that was written in one epoch. Reconciliation
// compares the tables of two replicas.
type EpochEnd struct {
	Epoch      ident.Epoch
	Start, End ident.Position
}
