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
	// PrevCRC is that of the batch before it: what the log's chain is here, also
	// when retention has taken that batch away.
	PrevCRC uint32
}

// End is the position after the batch.
func (r Record) End() ident.Position {
	return ident.Position{Offset: r.Offset + ident.Offset(r.Size), Sequence: r.First + ident.Sequence(r.Count)}
}

// EpochEnd says what was written in one epoch: [Start, End) of the log. A
// partition's table of them is what reconciliation works on.
type EpochEnd struct {
	Epoch      ident.Epoch
	Start, End ident.Position
}
