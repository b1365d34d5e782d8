package replica

import "github.com/lockstepmq/lockstep/internal/ident"

// lag is how long a follower has owed an acknowledgement (AC-5). It has one mark at a time, the end of the log at one
// moment. A lag counted from the last acknowledgement would miss a follower that acknowledges all the while, but always
// old puts.
type lag struct {
	mark    ident.Offset // not acknowledged since sinceMS
	sinceMS int64
	keepsUp bool // the mark before was acknowledged within half of T_isr
}

// restart sets the mark to the present end of the log.
func (g *lag) restart(logEnd ident.Offset, nowMS int64) { g.mark, g.sinceMS = logEnd, nowMS }

// advance sets the next mark once the present one is acknowledged.
func (g *lag) advance(end, logEnd ident.Offset, nowMS, isrMS int64) {
	if end >= g.mark {
		g.keepsUp = nowMS-g.sinceMS < isrMS/2
		g.restart(logEnd, nowMS)
	}
}
