package nsqd

import (
	"maps"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Relocations are the places of messages that were copied to the end of the log before retention removed
// the original. The map is part of the replicated state of a partition.
//
// It does not decide which messages are relocated or still needed (nsqd and retention do). It reads the messages
// from the log that the caller names.
//
// Invariants
//
//  1. Deltas are idempotent: applied again, also to a newer state, they change nothing. A batch at a higher
//     offset replaces an earlier one, never the other way.
//  2. A batch is settled only when every in-sync replica has a durable record that all of them have it. The place
//     before it, the original or the settled batch, may go from then on, and not before.
//
// It starts no goroutine. Its lock is a leaf.

// Relocations maps each message that was copied to the end of the log before retention removed the
// original to the relocation batches that hold it. It is part of the replicated state. Its lock is
// a leaf.
type Relocations struct {
	mu sync.RWMutex
	at map[ident.Sequence]places
}

// NoOffset is the offset of no relocation batch, because a log begins with a marker.
const NoOffset ident.Offset = 0

// places are the relocation batches of one message. A batch is settled when every in-sync replica
// has a durable record that all of them have it. Before that, a replica that does not have the
// record may become leader, and then the message must still lie where it was before: in the settled
// batch, or where it was published if there is no settled batch. So the settled batch stays until a newer one
// is settled.
type places struct {
	settled ident.Offset // NoOffset: none
	latest  ident.Offset // at or above settled
}

// first is the place from which the message is read. Retention keeps the log from there on.
func (x places) first() ident.Offset {
	if x.settled != NoOffset {
		return x.settled
	}
	return x.latest
}

// Find returns the offset of the relocation batch from which the message is read: the settled one
// if there is one.
func (c *Relocations) Find(seq ident.Sequence) (ident.Offset, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return x.first(), ok
}

// Holds reports whether a settled relocation batch at or above an offset contains the message, so
// that the original may go.
func (c *Relocations) Holds(seq ident.Sequence, at ident.Offset) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x := c.at[seq]
	return x.settled != NoOffset && x.settled >= at
}

// Add records a relocation batch. A batch at a lower offset than one that is recorded changes
// nothing, so deltas may be applied again.
func (c *Relocations) Add(at ident.Offset, seqs []ident.Sequence, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[ident.Sequence]places, len(seqs))
	}
	for _, seq := range seqs {
		x := c.at[seq]
		x.latest = max(x.latest, at)
		if settled {
			x.settled = max(x.settled, at)
		}
		c.at[seq] = x
	}
}

// ForgetFrom forgets the relocation batches of the messages at or above an offset, because the log
// ends there.
func (c *Relocations) ForgetFrom(end ident.Offset, seqs []ident.Sequence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seq := range seqs {
		switch x, ok := c.at[seq]; {
		case !ok || x.latest < end:
		case x.settled == NoOffset || x.settled >= end:
			delete(c.at, seq)
		default:
			c.at[seq] = places{settled: x.settled, latest: x.settled}
		}
	}
}

// Beyond lists, sorted, the messages with a relocation batch that begins at or above an offset.
func (c *Relocations) Beyond(end ident.Offset) (seqs []ident.Sequence) {
	for _, x := range c.List() {
		if x.Latest >= end {
			seqs = append(seqs, x.Seq)
		}
	}
	return seqs
}

// List returns all entries by sequence.
func (c *Relocations) List() []state.Relocated {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]state.Relocated, 0, len(c.at))
	for _, seq := range slices.Sorted(maps.Keys(c.at)) {
		all = append(all, state.Relocated{Seq: seq, Settled: c.at[seq].settled, Latest: c.at[seq].latest})
	}
	return all
}

// Replace takes the entries of a snapshot.
func (c *Relocations) Replace(all []state.Relocated) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = make(map[ident.Sequence]places, len(all))
	for _, x := range all {
		c.at[x.Seq] = places{x.Settled, x.Latest}
	}
}

// Retain forgets the entries that needed does not report, and returns the first offset of the log
// that the rest needs. The caller excludes every change of the state from the look at the channels
// on which needed relies until Retain returns: an entry that came between would be forgotten.
func (c *Relocations) Retain(needed func(ident.Sequence) bool) (low ident.Offset, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq, x := range c.at {
		if !needed(seq) {
			delete(c.at, seq)
			continue
		}
		if !any || x.first() < low {
			low, any = x.first(), true
		}
	}
	return low, any
}
