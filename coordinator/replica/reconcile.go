package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// join finds where two logs part, from their epoch tables alone: at the lesser
// end of the highest epoch that both hold. Within an epoch one leader wrote one
// sequence of batches on top of one log, so two logs that hold the epoch are
// equal up to there (KIP-279's rule). No common epoch: the zero position.
func join(a, b []commitlog.EpochEnd) ident.Position {
	i, j := len(a)-1, len(b)-1
	for i >= 0 && j >= 0 {
		switch {
		case a[i].Epoch == b[j].Epoch:
			return least(a[i].End, b[j].End)
		case a[i].Epoch > b[j].Epoch:
			i--
		default:
			j--
		}
	}
	return ident.Position{}
}
