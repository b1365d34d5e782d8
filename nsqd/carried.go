package nsqd

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// carried knows the messages that retention would have taken and that were
// copied forward: by sequence, where their newest carry batch begins. It is part
// of the replicated state. Its lock is a leaf.
type carried struct {
	mu sync.RWMutex
	at map[ident.Sequence]whereabouts
}

// whereabouts is where a message was carried to. It is settled when all in-sync replicas know
// that all of them know it: before that a leader may come that does not, for which the
// message has to stay where it was put.
type whereabouts struct {
	at      ident.Offset
	settled bool
}

func (c *carried) find(seq ident.Sequence) (ident.Offset, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return x.at, ok
}

// holds reports whether a message need not stay where it was put for a batch at an
// offset or further.
func (c *carried) holds(seq ident.Sequence, at ident.Offset) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x, ok := c.at[seq]
	return ok && x.settled && x.at >= at
}

// nowhere is no place of a carry batch: a log begins with a marker. Carried to it is
// what was carried to a place that the log does not have.
const nowhere ident.Offset = 0

// add notes a batch; a later one takes the place of an earlier one, also when
// deltas are applied again.
func (c *carried) add(at ident.Offset, seqs []ident.Sequence, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[ident.Sequence]whereabouts, len(seqs))
	}
	for _, seq := range seqs {
		switch x, ok := c.at[seq]; {
		case at == nowhere:
			delete(c.at, seq)
		case !ok || x.at < at:
			c.at[seq] = whereabouts{at, settled}
		case x.at == at && settled:
			c.at[seq] = whereabouts{at, true}
		}
	}
}

// beyond lists, sorted, what was carried to an offset or further.
func (c *carried) beyond(end ident.Offset) (seqs []ident.Sequence) {
	for _, x := range c.list() {
		if x.at >= end {
			seqs = append(seqs, x.seq)
		}
	}
	return slices.Compact(seqs)
}

// list gives all, by sequence; twice what is not settled.
func (c *carried) list() []placed {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]placed, 0, len(c.at))
	for _, seq := range slices.Sorted(maps.Keys(c.at)) {
		x := c.at[seq]
		if all = append(all, placed{seq, x.at}); !x.settled {
			all = append(all, placed{seq, x.at})
		}
	}
	return all
}

func (c *carried) replace(all []placed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = make(map[ident.Sequence]whereabouts, len(all))
	for _, x := range all {
		_, twice := c.at[x.seq]
		c.at[x.seq] = whereabouts{x.at, !twice}
	}
}

// keep forgets what nobody needs and gives the least offset of the rest.
func (c *carried) keep(needed map[ident.Sequence]struct{}) (low ident.Offset, any bool) {
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

// placed is one carried message.
type placed struct {
	seq ident.Sequence
	at  ident.Offset
}

// Carry notes, on all in-sync replicas before it returns, that the committed
// carry batch at an offset holds these messages. Errors as DeleteChannel.
func (p *Partition) Carry(ctx context.Context, at ident.Offset, seqs []ident.Sequence) error {
	return p.change(ctx, func() (record, error) {
		return record{kind: kindCarry, offset: at, seqs: seqs}, nil
	})
}

// Settle says after Carry that all in-sync replicas know it: from then on, and nowhere
// before, the messages are not needed where they were put first.
func (p *Partition) Settle(ctx context.Context, at ident.Offset, seqs []ident.Sequence) error {
	return p.change(ctx, func() (record, error) {
		return record{kind: kindCarry, flags: flagSettled, offset: at, seqs: seqs}, nil
	})
}

// Floor is the sequence from which on everything may be needed; below it only
// what was put aside is. Like LowWater it looks at durable channels only.
func (p *Partition) Floor() ident.Sequence {
	p.CatchUp()
	p.mu.RLock()
	defer p.mu.RUnlock()
	low, durable := MaxSequence, false
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

// Aside lists, sorted, the unfinished messages below a sequence that some
// durable channel has put aside and that no carry batch at or above an offset
// holds. all is false if they are more than most.
func (p *Partition) Aside(below ident.Sequence, at ident.Offset, most int) (seqs []ident.Sequence, all bool) {
	found := map[ident.Sequence]struct{}{}
	for _, c := range p.list() {
		if !c.ephemeral && !c.aside(below, at, most, found) {
			return nil, false
		}
	}
	return slices.Sorted(maps.Keys(found)), true
}

// aside adds the channel's; false: there are more than most.
func (c *Channel) aside(below ident.Sequence, at ident.Offset, most int, found map[ident.Sequence]struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq := range c.cursor.aside.all {
		if seq >= below {
			continue
		}
		if c.p.carried.holds(seq, at) {
			continue
		}
		if found[seq] = struct{}{}; len(found) > most {
			return false
		}
	}
	return true
}

// AsideCount is how many messages all durable channels have put aside.
func (p *Partition) AsideCount() (n int) {
	for _, c := range p.list() {
		if !c.ephemeral {
			c.mu.Lock()
			n += c.cursor.aside.len()
			c.mu.Unlock()
		}
	}
	return n
}

// CarriedFrom is where the first carry batch begins that is still needed. What
// no channel needs any more is forgotten.
func (p *Partition) CarriedFrom() (ident.Offset, bool) {
	all := p.carried.list()
	if len(all) == 0 {
		return 0, false
	}
	needed := map[ident.Sequence]struct{}{}
	for _, c := range p.list() {
		if c.ephemeral {
			continue
		}
		c.mu.Lock()
		for _, x := range all {
			if c.cursor.aside.has(x.seq) {
				needed[x.seq] = struct{}{}
			}
		}
		c.mu.Unlock()
	}
	return p.carried.keep(needed)
}

func (c *Channel) confirmed() ident.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.confirmed
}

// Read gives committed messages by their sequence, put aside or not: from the log, or from where
// they were carried when the log does not reach back to them.
func (p *Partition) Read(from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	if at, ok := p.carried.find(from); ok && from < p.source.Start().Sequence {
		m, ok, err := p.source.ReadCarried(at, from)
		if ok {
			dst = append(dst, m)
		}
		return dst, err
	}
	return p.source.Read(from, most, dst)
}

// readEach gives the first of the messages, or what Read says of it, and those that
// follow in this order as far as they can be read, of about readAheadBytes. It reads in
// the order of the log, so that a batch which holds many of them is read once.
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
		read, _ = p.Read(sorted[0], n, read[:0]) // what cannot be read is told when it is the first
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
