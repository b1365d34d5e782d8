package cursor

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Elsewhere is the effect of FinishElsewhere.
type Elsewhere struct {
	Finished uint64 // messages that were not finished before
	Kept     uint64 // messages that this channel has delivered and not finished
	Stays    bool   // nothing has changed, because the channel has consumers
}

// FinishElsewhere finishes the messages of the spans below a limit, except those that the channel has delivered itself:
// the held ones, and deferred ones with attempts. It returns the change for the replicas.
func (c *Cursor) FinishElsewhere(spans []Span, limit ident.Sequence, held []ident.Sequence) (made Progress, e Elsewhere) {
	for _, s := range spans {
		if s.To = min(s.To, limit); s.From < s.To {
			made.Settled = append(made.Settled, s)
		}
	}
	for _, seq := range held {
		if c.Deferred.Has(seq) {
			continue // settled already
		}
		if left, cut := without(made.Settled, seq); cut {
			made.Settled = left
			e.Kept++
		}
	}
	for seq := range c.Deferred.All {
		if _, named := without(made.Settled, seq); !named {
			continue
		}
		if x, _ := c.Deferred.Get(seq); x.Attempts() > 0 || slices.Contains(held, seq) {
			e.Kept++
			continue
		}
		made.Finished = append(made.Finished, seq)
	}
	before := c.SettledCount()
	for _, s := range made.Settled {
		c.Settle(s)
	}
	for _, seq := range made.Finished {
		c.Finish(seq)
	}
	e.Finished = c.SettledCount() - before + uint64(len(made.Finished))
	return made, e
}

// without removes one sequence from the spans; cut reports whether a span had it.
func without(spans []Span, seq ident.Sequence) (left []Span, cut bool) {
	at := slices.IndexFunc(spans, func(s Span) bool { return s.From <= seq && seq < s.To })
	if at < 0 {
		return spans, false
	}
	s := spans[at]
	for _, part := range []Span{{s.From, seq}, {seq + 1, s.To}} {
		if part.From < part.To {
			left = append(left, part)
		}
	}
	return slices.Concat(spans[:at], left, spans[at+1:]), true
}
