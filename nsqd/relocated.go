package nsqd

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// relocations maps each message that was copied to the end of the log before retention removed the
// original to the offset of its newest relocation batch. It is part of the replicated state. Its
// lock is a leaf.
type relocations struct {
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

func (c *relocations) find(seq ident.Sequence) (ident.Offset, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return x.at, ok
}

// holds reports whether a settled relocation batch at or above an offset contains the message, so
// that the original may go.
func (c *relocations) holds(seq ident.Sequence, at ident.Offset) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return ok && x.settled && x.at >= at
}

// noOffset is the offset of no relocation batch, because a log begins with a marker. A delta with
// this offset forgets relocations to places beyond the end of the log.
const noOffset ident.Offset = 0

// add records a relocation batch. A batch at a higher offset replaces an earlier one, also when
// deltas are applied again.
func (c *relocations) add(at ident.Offset, seqs []ident.Sequence, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[ident.Sequence]relocation, len(seqs))
	}
	for _, seq := range seqs {
		switch x, ok := c.at[seq]; {
		case at == noOffset:
			delete(c.at, seq)
		case !ok || x.at < at:
			c.at[seq] = relocation{at, settled}
		case x.at == at && settled:
			c.at[seq] = relocation{at, true}
		}
	}
}

// beyond lists, sorted, the messages whose relocation batch begins at or above an offset.
func (c *relocations) beyond(end ident.Offset) (seqs []ident.Sequence) {
	for _, x := range c.list() {
		if x.At >= end {
			seqs = append(seqs, x.Seq)
		}
	}
	return slices.Compact(seqs)
}

// list returns all entries by sequence. An entry that is not settled appears twice, as in the
// snapshot.
func (c *relocations) list() []state.Relocated {
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

func (c *relocations) replace(all []state.Relocated) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = make(map[ident.Sequence]relocation, len(all))
	for _, x := range all {
		_, twice := c.at[x.Seq]
		c.at[x.Seq] = relocation{x.At, !twice}
	}
}

// retain forgets the entries that are not in needed, and returns the least offset of the rest.
func (c *relocations) retain(needed map[ident.Sequence]struct{}) (low ident.Offset, any bool) {
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

// Relocate records that the committed relocation batch at an offset holds these messages. It
// returns when the record is on all in-sync replicas. Errors as DeleteChannel.
func (p *Partition) Relocate(ctx context.Context, at ident.Offset, seqs []ident.Sequence) error {
	return p.change(ctx, func() (state.Record, error) {
		return state.Record{Kind: state.KindRelocate, Offset: at, Seqs: seqs}, nil
	})
}

// SettleRelocation records, after Relocate, that all in-sync replicas have the relocation. From
// then on the originals of the messages are not needed, and not before. Errors as DeleteChannel.
func (p *Partition) SettleRelocation(ctx context.Context, at ident.Offset, seqs []ident.Sequence) error {
	return p.change(ctx, func() (state.Record, error) {
		return state.Record{Kind: state.KindRelocate, Flags: state.FlagSettled, Offset: at, Seqs: seqs}, nil
	})
}

// Floor is the least confirmed sequence of the durable channels. At and above it every message may
// still be needed; below it only deferred messages are. Without durable channels it is the topic's
// cursor.
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

// DeferredBelow lists, sorted, the unfinished messages below a sequence that some durable channel
// has deferred and that no relocation batch at or above an offset holds. all is false if there are
// more than most; the list is then empty.
func (p *Partition) DeferredBelow(below ident.Sequence, at ident.Offset, most int) (seqs []ident.Sequence, all bool) {
	found := map[ident.Sequence]struct{}{}
	for _, c := range p.list() {
		if !c.ephemeral && !c.deferredBelow(below, at, most, found) {
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
	for _, c := range p.list() {
		if !c.ephemeral {
			c.mu.Lock()
			n += c.cursor.Deferred.Len()
			c.mu.Unlock()
		}
	}
	return n
}

// RelocatedFrom is the offset of the first relocation batch that is still needed, false if none is.
// It forgets relocations that no channel needs any more.
func (p *Partition) RelocatedFrom() (ident.Offset, bool) {
	all := p.relocations.list()
	if len(all) == 0 {
		return 0, false
	}
	needed := map[ident.Sequence]struct{}{}
	for _, c := range p.list() {
		if c.ephemeral {
			continue
		}
		c.mu.Lock()
		for _, x := range all { // a replica may have the record before the channel's progress
			if !c.cursor.Settled(x.Seq) || c.cursor.Deferred.Has(x.Seq) {
				needed[x.Seq] = struct{}{}
			}
		}
		c.mu.Unlock()
	}
	return p.relocations.retain(needed)
}

func (c *Channel) confirmed() ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.Confirmed()
}

// Read appends committed messages from a sequence on to dst, at most `most`: from the log, or from
// a relocation batch if the log begins above the sequence. It may read a disk.
func (p *Partition) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	if at, ok := p.relocations.find(from); ok && from < p.source.Start().Sequence {
		m, ok, err := p.source.ReadRelocated(at, from)
		if ok {
			dst = append(dst, m)
		}
		return dst, err
	}
	return p.source.Read(from, most, dst)
}

// readEach reads the messages of a list. The first one gives its error, or is missing, as with
// Read. The others follow in the order of the list, as far as they can be read, until they take
// about readAheadBytes. The reads go in the order of the log, so that a batch with many of the
// messages is read once.
func (p *Partition) readEach(seqs []ident.Sequence, dst []queue.Message) ([]queue.Message, error) {
	dst, err := p.Read(seqs[0], 1, dst)
	if err != nil || len(dst) == 0 || dst[0].Seq != seqs[0] {
		return dst, err
	}
	bytes := dst[0].Size()
	found := map[ident.Sequence]queue.Message{}
	sorted := slices.Sorted(slices.Values(seqs[1:]))
	var read []queue.Message
	for len(sorted) > 0 && bytes < readAheadBytes {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0]+ident.Sequence(n) {
			n++
		}
		read, _ = p.Read(sorted[0], n, read[:0]) // its error is reported once this message is the first of a list
		for i := range read {
			found[read[i].Seq] = read[i]
			bytes += read[i].Size()
		}
		sorted = sorted[min(max(len(read), 1), n):]
	}
	for _, seq := range seqs[1:] {
		m, ok := found[seq]
		if !ok {
			break
		}
		dst = append(dst, m)
	}
	return dst, nil
}
