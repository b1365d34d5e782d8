package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// join finds where two logs part, from their epoch tables alone: at the lesser end of the highest epoch that both have.
// Within an epoch one leader wrote one sequence of batches on top of one log, so two logs that have the epoch are equal
// up to there (KIP-279). It returns false if they have no epoch in common.
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

// divergence is the furthest position up to which this log and a follower's may be equal (CU-1). If the tables have no
// epoch in common, the follower was away for more epochs than a table holds. Then the leader asks at the follower's
// end, or at its own if that comes first, and with each rejection one batch further back: only of a position that the
// follower has can it say that the logs are equal there. A start from the beginning would ask a follower whose
// retention has moved for positions that it has not. The end is that of the follower's table: its durable end may lie
// before the start of a log that has just begun afresh and is not synced yet.
func (m *Machine) divergence(rejection *Message) ident.Position {
	if at, ok := join(m.log.epochs, rejection.Epochs); ok {
		return at
	}
	end := rejection.Durable
	if n := len(rejection.Epochs); n > 0 {
		end = rejection.Epochs[n-1].End
	}
	at, _ := m.batchAt(min(end.Offset, m.log.end.Offset-1))
	return at
}
