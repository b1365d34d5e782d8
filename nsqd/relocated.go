package nsqd

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Relocate records that the committed relocation batch at an offset contains these messages. It returns when the record
// is on all in-sync replicas. settled: they have the first such record; only from then on the originals of the messages
// are not needed. Errors as DeleteChannel.
func (p *Partition) Relocate(ctx context.Context, at ident.Offset, seqs []ident.Sequence, settled bool) error {
	return p.change(ctx, func() (state.Record, error) {
		return state.Record{Kind: state.KindRelocate, Flags: flagIf(settled, state.FlagSettled), Offset: at, Seqs: seqs}, nil
	})
}

// Floor is the least confirmed sequence of the durable channels; below it only deferred messages are needed. Without
// durable channels it is the topic's cursor.
func (p *Partition) Floor() ident.Sequence {
	p.ApplyPending()
	p.mu.RLock()
	defer p.mu.RUnlock()
	low, durable := ident.MaxSequence, false
	for _, c := range p.channels {
		if !c.ephemeral {
			durable = true
			low = min(low, c.confirmed())
		}
	}
	if !durable {
		return p.keep
	}
	return low
}

// DeferredBelow lists, sorted, the messages below a sequence that some durable channel has deferred and that no
// relocation batch at or above an offset contains. all is false if there are more than most; the list is then empty.
func (p *Partition) DeferredBelow(below ident.Sequence, at ident.Offset, most int) (seqs []ident.Sequence, all bool) {
	found := map[ident.Sequence]struct{}{}
	for _, c := range p.durable() {
		if !c.deferredBelow(below, at, most, found) {
			return nil, false
		}
	}
	return slices.Sorted(maps.Keys(found)), true
}

// deferredBelow adds the channel's messages to found. False: there are more than most.
func (c *Channel) deferredBelow(below ident.Sequence, at ident.Offset, most int, found map[ident.Sequence]struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq := range c.cursor.Deferred.All {
		if seq >= below {
			continue
		}
		if c.p.relocations.holds(seq, at) {
			continue
		}
		if found[seq] = struct{}{}; len(found) > most {
			return false
		}
	}
	return true
}

// DeferredCount is the number of deferred messages of all durable channels.
func (p *Partition) DeferredCount() (n int) {
	for _, c := range p.durable() {
		c.mu.Lock()
		n += c.cursor.Deferred.Len()
		c.mu.Unlock()
	}
	return n
}

// Removable decides for retention which part of the log no durable channel needs: messages below the sequence, and log
// before the offset, from which on relocation batches are needed (MaxInt64: none is). A deferred message is needed where
// it was published until a relocation batch with it is settled. Ephemeral channels need nothing. A topic without durable
// channels needs everything since its last channel was deleted, except what ReleaseEphemeral released. Removable forgets
// relocations that no channel needs.
//
// It reads the channels and the relocations atomically: no delta and no snapshot is applied in between. Otherwise it
// could rely on a batch that the second read no longer protects.
func (p *Partition) Removable() (below ident.Sequence, from ident.Offset) {
	p.ApplyPending()
	p.mu.RLock() // every delta and snapshot is applied under mu
	defer p.mu.RUnlock()
	relocated, needed := p.relocations.list(), map[ident.Sequence]struct{}{}
	below, durable := ident.MaxSequence, false
	for _, c := range p.channels {
		if c.ephemeral {
			continue
		}
		durable = true
		c.mu.Lock()
		below = min(below, c.lowWaterLocked())
		for _, x := range relocated { // a replica may have the record before the channel's progress
			if !c.cursor.Settled(x.Seq) || c.cursor.Deferred.Has(x.Seq) {
				needed[x.Seq] = struct{}{}
			}
		}
		c.mu.Unlock()
	}
	if !durable {
		below = p.keep
	}
	from, any := p.relocations.retain(func(seq ident.Sequence) bool { _, ok := needed[seq]; return ok })
	if !any {
		from = math.MaxInt64
	}
	return below, from
}

func (c *Channel) confirmed() ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.Confirmed()
}

// Read appends committed messages from a sequence on to dst, at most `most`: from the log, or from
// a relocation batch if the log begins above the sequence. It may read a disk.
func (p *Partition) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	return p.relocations.read(p.source, from, most, dst)
}
