package nsqd

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// scoutMessages bounds how far one look at a channel reads ahead of its consumers.
const scoutMessages = 1 << 16

// looking is a channel from which delayed messages are to be found.
type looking struct {
	channel    *Channel
	from       ident.Sequence
	generation uint64
}

// scout finds delayed messages that no consumer has come to yet: they are
// deferred, not depth. Each message is looked at once; only statistics and
// listings ask for it, since delivery finds delayed messages when it gets there.
// Channels whose looks meet go on together: a topic may have hundreds that are far
// behind, and what is read serves them all.
func (p *Partition) scout(channels []*Channel) {
	var all []looking
	for _, c := range channels {
		if l, ok := c.looking(); ok {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(x, y looking) int { return cmp.Compare(x.from, y.from) })
	for len(all) > 0 {
		all = all[p.scoutTogether(all):]
	}
}

// scoutTogether looks for the first channel and for those that it meets, and
// returns how many they are. Who is met last sees the most ahead.
func (p *Partition) scoutTogether(all []looking) (n int) {
	var read []queue.Message
	n, now := 1, p.o.Now()
	for at := all[0].from; at < all[n-1].from+scoutMessages; {
		read, _ = p.source.Read(at, readAheadMessages, read[:0])
		if len(read) == 0 {
			break
		}
		at = read[len(read)-1].Seq + 1
		for n < len(all) && all[n].from < at {
			n++
		}
		read = slices.DeleteFunc(read, func(m queue.Message) bool { return m.DeliverAt <= now })
		for _, l := range all[:n] {
			l.channel.scoutedThrough(read, at, l.generation)
		}
	}
	return n
}

// looking says where to look on; false: everything is known.
func (c *Channel) looking() (l looking, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l = looking{channel: c, from: max(c.scouted, c.fetched), generation: c.generation}
	return l, c.serving && l.from < c.limit
}

// scoutedThrough puts aside what is delayed of the messages before `to`.
func (c *Channel) scoutedThrough(delayed []queue.Message, to ident.Sequence, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation || !c.serving {
		return
	}
	c.scouted = max(c.scouted, min(to, c.limit))
	for i := range delayed {
		m := &delayed[i]
		if m.Seq < c.limit && m.Seq >= c.fetched && !c.cursor.settled(m.Seq) {
			c.cursor.putAside(newEntry(m.Seq, m.DeliverAt, 0))
			c.changedLocked()
		}
	}
	c.p.lower(c.cursor.aside.next())
}

// scoutFor puts delayed messages aside that are further than scout looks.
func (c *Channel) scoutFor(seqs []ident.Sequence) {
	for _, seq := range seqs {
		c.mu.Lock()
		look := c.serving && seq < c.limit && seq >= c.fetched && !c.cursor.settled(seq)
		generation := c.generation
		c.mu.Unlock()
		if !look {
			continue
		}
		read, _ := c.p.source.Read(seq, 1, nil) // what cannot be read is not cancelled
		if len(read) == 0 || read[0].Seq != seq || read[0].DeliverAt <= c.p.o.Now() {
			continue
		}
		c.mu.Lock()
		if generation == c.generation && c.serving && seq >= c.fetched && !c.cursor.settled(seq) {
			c.cursor.putAside(newEntry(seq, read[0].DeliverAt, 0))
			c.changedLocked()
			c.p.lower(read[0].DeliverAt)
		}
		c.mu.Unlock()
	}
}
