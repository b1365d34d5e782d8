package nsqd

import (
	"context"
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

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
		if c.p.relocations.Holds(seq, at) {
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
	all := p.relocations.List()
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
	return p.relocations.Retain(needed)
}

func (c *Channel) confirmed() ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.Confirmed()
}

// Read appends committed messages from a sequence on to dst, at most `most`: from the log, or from
// a relocation batch if the log begins above the sequence. It may read a disk.
func (p *Partition) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	if at, ok := p.relocations.Find(from); ok && from < p.source.Start().Sequence {
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
