package nsqd

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Position is how far a channel is: its replicated state, as of one moment. Deferred is sorted by
// sequence. Consumers is the number of its subscribers.
type Position struct {
	Channel   string
	Confirmed ident.Sequence
	Settled   []cursor.Span
	Deferred  []cursor.Entry
	Consumers int
}

// Positions lists the positions of the durable channels. If a channel has more than `most` deferred
// messages, the rest is left out, and the position ends before the first of that rest: it is then
// earlier than the channel, never later.
func (p *Partition) Positions(most int) (all []Position) {
	for _, c := range p.list() {
		if !c.ephemeral {
			all = append(all, c.position(most))
		}
	}
	return all
}

func (c *Channel) position(most int) Position {
	c.mu.Lock()
	full := c.cursor.Full()
	at := Position{Channel: c.name, Consumers: len(c.subs)}
	c.mu.Unlock()
	slices.SortFunc(full.Deferred, func(x, y cursor.Entry) int { return cmp.Compare(x.Packed, y.Packed) })
	if len(full.Deferred) > most {
		full = full.Below(full.Deferred[most].Seq())
	}
	at.Confirmed, at.Settled, at.Deferred = full.Confirmed, full.Settled, full.Deferred
	return at
}
