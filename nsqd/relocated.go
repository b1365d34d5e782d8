package nsqd

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Relocate records that the committed relocation batch at an offset contains these messages, on all in-sync replicas.
// settled: all of them have the first such record, and no longer need the originals. Errors are those of DeleteChannel.
func (p *Partition) Relocate(ctx context.Context, at ident.Offset, seqs []ident.Sequence, settled bool) error {
	return p.change(ctx, func() (state.Record, error) {
		return state.Record{Kind: state.KindRelocate, Flags: flagIf(settled, state.FlagSettled), Offset: at, Seqs: seqs}, nil
	})
}

// Floor is the lowest confirmed sequence of the durable channels or, if there are none, the topic's cursor.
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
// relocation batch at or above an offset contains. all is false if there are more than `most`; the list is then empty.
func (p *Partition) DeferredBelow(below ident.Sequence, at ident.Offset, most int) (seqs []ident.Sequence, all bool) {
	found := map[ident.Sequence]struct{}{}
	for _, c := range p.durable() {
		if !c.deferredBelow(below, at, most, found) {
			return nil, false
		}
	}
	return slices.Sorted(maps.Keys(found)), true
}

// deferredBelow adds the channel's messages to found. False: found has more than `most` messages.
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

// Removable decides for retention which part of the log no durable channel needs: it may remove what is both below the
// sequence and before the offset. The offset is that of the first relocation batch that is still needed (MaxInt64: none
// is). A deferred message is needed at its original position until a relocation batch that contains it is settled.
// A topic without durable channels needs everything since its last one was deleted, except what ReleaseEphemeral
// released. Removable forgets unneeded relocations.
//
// It reads channels and relocations atomically: otherwise it could rely on a batch that the second read no longer
// protects.
func (p *Partition) Removable() (below ident.Sequence, from ident.Offset) {
	p.ApplyPending()
	p.mu.RLock() // makes the reads atomic: every delta and snapshot is applied under mu
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

// relocations maps each message that was copied to the end of the log before retention removed the original to the
// relocation batches that hold it. It is replicated state. Its lock is a leaf.
//
// Invariants
//
//  1. Deltas are idempotent: applied again, even to a newer state, they change nothing. A batch at a higher offset
//     replaces an earlier one, never the reverse.
//  2. A batch is settled only when every in-sync replica has a durable record that all of them have it. Only then may
//     the previous copy (the original or the previously settled batch) be removed.
type relocations struct {
	mu sync.RWMutex
	at map[ident.Sequence]places
}

// noOffset is the offset of no relocation batch, because a log begins with a marker.
const noOffset ident.Offset = 0

// places are the relocation batches of one message. Before the latest is settled, a replica without its record may
// become leader, so the message must still exist in its previous copy: the settled batch, or the original.
type places struct {
	settled ident.Offset // noOffset: none
	latest  ident.Offset // at or above settled
}

// first is the offset from which the message is read. The log from that offset on is needed.
func (x places) first() ident.Offset {
	if x.settled != noOffset {
		return x.settled
	}
	return x.latest
}

// find returns the offset of the relocation batch from which the message is read: the settled one if it exists.
func (c *relocations) find(seq ident.Sequence) (ident.Offset, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return x.first(), ok
}

// holds reports whether a settled relocation batch at or above an offset contains the message.
func (c *relocations) holds(seq ident.Sequence, at ident.Offset) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x := c.at[seq]
	return x.settled != noOffset && x.settled >= at
}

// add records a relocation batch, unless one at a higher offset is recorded: deltas may be applied again.
func (c *relocations) add(at ident.Offset, seqs []ident.Sequence, settled bool) {
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

// forgetFrom forgets the relocation batches of the messages at or above an offset, because the log ends there.
func (c *relocations) forgetFrom(end ident.Offset, seqs []ident.Sequence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seq := range seqs {
		switch x, ok := c.at[seq]; {
		case !ok || x.latest < end:
		case x.settled == noOffset || x.settled >= end:
			delete(c.at, seq)
		default:
			c.at[seq] = places{settled: x.settled, latest: x.settled}
		}
	}
}

// beyond lists, sorted, the messages with a relocation batch that begins at or above an offset.
func (c *relocations) beyond(end ident.Offset) (seqs []ident.Sequence) {
	for _, x := range c.list() {
		if x.Latest >= end {
			seqs = append(seqs, x.Seq)
		}
	}
	return seqs
}

func (c *relocations) list() []state.Relocated {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]state.Relocated, 0, len(c.at))
	for _, seq := range slices.Sorted(maps.Keys(c.at)) {
		all = append(all, state.Relocated{Seq: seq, Settled: c.at[seq].settled, Latest: c.at[seq].latest})
	}
	return all
}

func (c *relocations) replace(all []state.Relocated) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = make(map[ident.Sequence]places, len(all))
	for _, x := range all {
		c.at[x.Seq] = places{x.Settled, x.Latest}
	}
}

// retain forgets the entries that are not needed, and returns the first offset of the log that the remaining entries
// need. The caller prevents changes of the state since it read the channels, because an entry that was added in the
// meantime would be forgotten.
func (c *relocations) retain(needed func(ident.Sequence) bool) (low ident.Offset, any bool) {
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

// read appends committed messages from a sequence on to dst, at most `most`: from the log, or from
// a relocation batch if the log begins above the sequence. It may read a disk.
func (c *relocations) read(log Log, from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	for had := len(dst); ; dst = dst[:had] {
		at, relocated := c.find(from)
		start := log.Start()
		read, err := c.readFrom(log, from, at, most, dst)
		if len(read) > had && read[had].Seq == from {
			return read, err
		}
		// Retention may have relocated the message, or removed its previous copy, since find was called.
		if now, ok := c.find(from); ok == relocated && now == at && log.Start() == start {
			return read, err
		}
	}
}

// readFrom is read with the relocation batch of the first message, noOffset: it has none.
func (c *relocations) readFrom(log Log, from ident.Sequence, at ident.Offset, most int, dst []queue.Message) ([]queue.Message, error) {
	if at != noOffset && from < log.Start().Sequence {
		m, ok, err := log.ReadRelocated(at, from)
		if ok {
			dst = append(dst, m)
		}
		return dst, err
	}
	return log.Read(from, most, dst)
}

// readEach reads the messages of a list. If the first one fails or is missing, the result is that of read. The others
// follow in the order of the list, as far as they can be read, until they take about `most` bytes. The reads go in the
// order of the log, so that a batch with many of the messages is read once.
func (c *relocations) readEach(log Log, seqs []ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	dst, err := c.read(log, seqs[0], 1, dst)
	if err != nil || len(dst) == 0 || dst[0].Seq != seqs[0] {
		return dst, err
	}
	bytes := dst[0].Size()
	found := map[ident.Sequence]queue.Message{}
	sorted := slices.Sorted(slices.Values(seqs[1:]))
	var read []queue.Message
	for len(sorted) > 0 && bytes < most {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0]+ident.Sequence(n) {
			n++
		}
		read, _ = c.read(log, sorted[0], n, read[:0]) // its error is reported when this message is the first of a list
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
