package relocations

import (
	"maps"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Map maps each message that was copied to the end of the log before retention removed the
// original to the offset of its newest relocation batch. It is part of the replicated state. Its
// lock is a leaf.
type Map struct {
	mu sync.RWMutex
	at map[ident.Sequence]relocation
}

// relocation is the place of one relocated message. It is settled when every in-sync replica has a
// durable record that all of them have the relocation. Before that, a replica that does not have it
// may become leader, and then the message must still lie where it was published.
type relocation struct {
	at      ident.Offset
	settled bool
}

// Find gives the offset of the relocation batch that holds the message.
func (c *Map) Find(seq ident.Sequence) (ident.Offset, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return x.at, ok
}

// Holds reports whether a settled relocation batch at or above an offset contains the message, so
// that the original may go.
func (c *Map) Holds(seq ident.Sequence, at ident.Offset) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return ok && x.settled && x.at >= at
}

// NoOffset is the offset of no relocation batch, because a log begins with a marker. A delta with
// this offset forgets relocations to places beyond the end of the log.
const NoOffset ident.Offset = 0

// Add records a relocation batch. A batch at a higher offset replaces an earlier one, also when
// deltas are applied again.
func (c *Map) Add(at ident.Offset, seqs []ident.Sequence, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[ident.Sequence]relocation, len(seqs))
	}
	for _, seq := range seqs {
		switch x, ok := c.at[seq]; {
		case at == NoOffset:
			delete(c.at, seq)
		case !ok || x.at < at:
			c.at[seq] = relocation{at, settled}
		case x.at == at && settled:
			c.at[seq] = relocation{at, true}
		}
	}
}

// Beyond lists, sorted, the messages whose relocation batch begins at or above an offset.
func (c *Map) Beyond(end ident.Offset) (seqs []ident.Sequence) {
	for _, x := range c.List() {
		if x.At >= end {
			seqs = append(seqs, x.Seq)
		}
	}
	return slices.Compact(seqs)
}

// List returns all entries by sequence. An entry that is not settled appears twice, as in the
// snapshot.
func (c *Map) List() []state.Relocated {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]state.Relocated, 0, len(c.at))
	for _, seq := range slices.Sorted(maps.Keys(c.at)) {
		x := c.at[seq]
		if all = append(all, state.Relocated{Seq: seq, At: x.at}); !x.settled {
			all = append(all, state.Relocated{Seq: seq, At: x.at})
		}
	}
	return all
}

// Replace takes the entries of a snapshot.
func (c *Map) Replace(all []state.Relocated) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = make(map[ident.Sequence]relocation, len(all))
	for _, x := range all {
		_, twice := c.at[x.Seq]
		c.at[x.Seq] = relocation{x.At, !twice}
	}
}

// Retain forgets the entries that are not in needed, and returns the least offset of the rest.
func (c *Map) Retain(needed map[ident.Sequence]struct{}) (low ident.Offset, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq, x := range c.at {
		if _, ok := needed[seq]; !ok {
			delete(c.at, seq)
			continue
		}
		if !any || x.at < low {
			low, any = x.at, true
		}
	}
	return low, any
}
