package nsqd

import (
	"maps"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// relocations maps each message that was copied to the end of the log before retention removed the
// original to the relocation batches that hold it. It is part of the replicated state of a partition. It
// does not decide which messages are relocated or still needed. Its lock is a leaf.
//
// Invariants
//
//  1. Deltas are idempotent: applied again, also to a newer state, they change nothing. A batch at a higher
//     offset replaces an earlier one, never the other way.
//  2. A batch is settled only when every in-sync replica has a durable record that all of them have it. The place
//     before it, the original or the settled batch, may go from then on, and not before.
type relocations struct {
	mu sync.RWMutex
	at map[ident.Sequence]places
}

// noOffset is the offset of no relocation batch, because a log begins with a marker.
const noOffset ident.Offset = 0

// places are the relocation batches of one message. Before the latest is settled, a replica that does not have its
// record may become leader. The message must then still exist at its previous place: in the settled batch, or where it
// was published.
type places struct {
	settled ident.Offset // noOffset: none
	latest  ident.Offset // at or above settled
}

// first is the place from which the message is read. The log from there on is needed.
func (x places) first() ident.Offset {
	if x.settled != noOffset {
		return x.settled
	}
	return x.latest
}

// find returns the offset of the relocation batch from which the message is read: the settled one if there is one.
func (c *relocations) find(seq ident.Sequence) (ident.Offset, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return x.first(), ok
}

// holds reports whether a settled relocation batch at or above an offset contains the message, so that the original may
// be removed.
func (c *relocations) holds(seq ident.Sequence, at ident.Offset) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x := c.at[seq]
	return x.settled != noOffset && x.settled >= at
}

// add records a relocation batch. A batch at a lower offset than one that is recorded changes
// nothing, so deltas may be applied again.
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

// list returns all entries by sequence.
func (c *relocations) list() []state.Relocated {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]state.Relocated, 0, len(c.at))
	for _, seq := range slices.Sorted(maps.Keys(c.at)) {
		all = append(all, state.Relocated{Seq: seq, Settled: c.at[seq].settled, Latest: c.at[seq].latest})
	}
	return all
}

// replace takes the entries of a snapshot.
func (c *relocations) replace(all []state.Relocated) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = make(map[ident.Sequence]places, len(all))
	for _, x := range all {
		c.at[x.Seq] = places{x.Settled, x.Latest}
	}
}

// retain forgets the entries that are not needed, and returns the first offset of the log that the rest needs. The caller
// excludes changes of the state since it read the channels: an entry that was added since would be forgotten.
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
		// Retention may have relocated the message, or removed its former place, since find.
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

// readEach reads the messages of a list. The first one gives its error, or is missing, as with read. The others follow
// in the order of the list, as far as they can be read, until they take about `most` bytes. The reads go in the order
// of the log, so that a batch with many of the messages is read once.
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
		read, _ = c.read(log, sorted[0], n, read[:0]) // its error is reported once this message is the first of a list
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
