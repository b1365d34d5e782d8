package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// join finds where two logs part, from their epoch tables alone: at the lesser
// end of the highest epoch that both hold. Within an epoch one leader wrote one
// sequence of batches on top of one log, so two logs that hold the epoch are
// equal up to there (KIP-279's rule). False if they hold no epoch in common.
func join(a, b []commitlog.EpochEnd) (ident.Position, bool) {
	i, j := len(a)-1, len(b)-1
	for i >= 0 && j >= 0 {
		switch {
		case a[i].Epoch == b[j].Epoch:
			return least(a[i].End, b[j].End), true
		case a[i].Epoch > b[j].Epoch:
			i--
		default:
			j--
		}
	}
	return ident.Position{}, false
}

// parting is where this log and that of a follower may part. One that was away for
// more epochs than the tables hold is asked about its end, or this one's if that comes
// first, and further back from there: only of what it holds can it say that it is the
// same.
func (m *Machine) parting(refusal *Message) ident.Position {
	if at, ok := join(m.log.epochs, refusal.Epochs); ok {
		return at
	}
	r, ok := m.index.AtOffset(min(refusal.Durable.Offset, m.log.end.Offset-1))
	if !ok || m.broken(BreakParting) {
		return ident.Position{}
	}
	return ident.Position{Offset: r.Offset, Sequence: r.First}
}
