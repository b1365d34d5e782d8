package nsqd

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// prescanMessages bounds how far one prescan reads ahead of the consumers of a channel.
const prescanMessages = 1 << 16

// scanPoint is a channel and the sequence from which it is prescanned.
type scanPoint struct {
	channel    *Channel
	from       ident.Sequence
	generation uint64
}

// prescan finds delayed messages that no consumer has reached yet, so that statistics and listings show them as
// deferred. Each message is read once for all channels whose ranges overlap, because a topic may have hundreds of
// channels.
func (p *Partition) prescan(channels []*Channel) {
	var all []scanPoint
	for _, c := range channels {
		if l, ok := c.scanPoint(); ok {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(x, y scanPoint) int { return cmp.Compare(x.from, y.from) })
	for len(all) > 0 {
		all = all[p.prescanTogether(all):]
	}
}

// prescanTogether prescans the first channel, and those whose ranges the read reaches, and returns
// their number. The range ends prescanMessages after the start of the last of them.
func (p *Partition) prescanTogether(all []scanPoint) (n int) {
	var read []queue.Message
	n, now := 1, p.o.Now()
	for at := all[0].from; at < all[n-1].from+prescanMessages; {
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
			l.channel.prescannedTo(read, at, l.generation)
		}
	}
	return n
}

// scanPoint returns where the prescan continues. False: all messages are known.
func (c *Channel) scanPoint() (l scanPoint, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l = scanPoint{channel: c, from: max(c.reader.prescanned, c.reader.fetched), generation: c.reader.generation}
	return l, c.serving.leads && l.from < c.limit
}

// prescannedTo defers the delayed messages below `to` that are for the channel. Reading finishes the others.
func (c *Channel) prescannedTo(delayed []queue.Message, to ident.Sequence, generation uint64) {
	c.mu.Lock()
	selected := c.selectionLocked()
	c.mu.Unlock()
	rejected := cursor.Sequences(reject(selected, delayed))
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.reader.generation || selected != c.selectionLocked() || !c.serving.leads {
		return
	}
	c.reader.prescanned = max(c.reader.prescanned, min(to, c.limit))
	for i := range delayed {
		m := &delayed[i]
		if _, not := rejected[m.Seq]; not {
			continue
		}
		if m.Seq < c.limit && m.Seq >= c.reader.fetched && !c.cursor.Settled(m.Seq) {
			c.cursor.DeferUntil(cursor.NewEntry(m.Seq, m.DeliverAt, 0))
			c.changedLocked()
		}
	}
	c.p.lower(c.cursor.Deferred.Next())
}

// prescanEach defers single delayed messages that are further ahead than a prescan reads, as prescannedTo does.
func (c *Channel) prescanEach(seqs []ident.Sequence) {
	for _, seq := range seqs {
		c.mu.Lock()
		ahead := c.serving.leads && seq < c.limit && seq >= c.reader.fetched && !c.cursor.Settled(seq)
		at := scanPoint{channel: c, from: c.reader.prescanned, generation: c.reader.generation}
		c.mu.Unlock()
		if !ahead {
			continue
		}
		read, _ := c.p.source.Read(seq, 1, nil) // a message that cannot be read is not cancelled
		if len(read) == 1 && read[0].Seq == seq && read[0].DeliverAt > c.p.o.Now() {
			c.prescannedTo(read, at.from, at.generation)
		}
	}
}
