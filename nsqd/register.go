package nsqd

import "github.com/lockstepmq/lockstep/internal/ident"

// Snapshot encodes the whole replicated state. It may include what no delta has
// said yet: deltas hold absolute values, so applying them on top does no harm.
func (p *Partition) Snapshot() []byte {
	channels := p.list()
	p.mu.RLock()
	s := snapshot{flags: flagIf(p.paused, flagPaused), barrier: p.barrier, keep: p.keep}
	p.mu.RUnlock()
	for _, c := range channels {
		if c.ephemeral {
			continue
		}
		c.mu.Lock()
		s.channels = append(s.channels, saved{
			name:     c.name,
			flags:    flagIf(c.ordered, flagOrdered) | flagIf(c.paused, flagPaused),
			start:    c.cursor.start,
			progress: c.cursor.whole(),
		})
		c.mu.Unlock()
	}
	s.carried = p.carried.list()
	return appendSnapshot(nil, s)
}

// applyLocked is the one method by which leader, follower and recovery change the
// state explicitly.
func (p *Partition) applyLocked(r record) {
	switch r.kind {
	case kindBarrier:
		p.paused, p.barrier = r.flags&flagPaused != 0, r.at
		p.raiseLocked()
		return
	case kindKeep:
		if r.flags&flagBack != 0 {
			p.keep = min(p.keep, r.at)
		} else {
			p.emptyLocked(r.at)
		}
		return
	case kindDelete:
		p.deleteLocked(r.channel, r.at)
		return
	case kindCarry:
		p.carried.add(r.offset, r.seqs, r.flags&flagSettled != 0)
		return
	}
	c := p.ensureLocked(r)
	switch r.kind {
	case kindProgress:
		c.progress(r.progress)
	case kindSeek:
		c.seek(r.at)
	case kindPause:
		c.pause(r.flags&flagPaused != 0)
	case kindOrder:
		c.order(r.flags&flagOrdered != 0)
	}
}

// ensureLocked finds the channel or makes it at the position told.
func (p *Partition) ensureLocked(r record) *Channel {
	if c, ok := p.channels[r.channel]; ok {
		return c
	}
	at := r.at
	if r.kind == kindProgress {
		at = r.progress.confirmed
	}
	c := newChannel(p, r.channel, r.kind == kindCreate && r.flags&flagOrdered != 0, at)
	p.channels[r.channel] = c
	return c
}

// raiseLocked hands the limit to all channels after it may have risen.
func (p *Partition) raiseLocked() {
	for _, c := range p.channels {
		c.advance(p.limitLocked())
	}
}

// emptyLocked settles for all channels what the topic's pause kept from them.
func (p *Partition) emptyLocked(end ident.Sequence) {
	p.keep = max(p.keep, end)
	if !p.paused || end <= p.barrier {
		return
	}
	for _, c := range p.channels {
		c.progress(progress{settled: []span{{p.barrier, end}}})
	}
	p.barrier = end
	p.raiseLocked()
}

func (p *Partition) deleteLocked(name string, keep ident.Sequence) {
	c, ok := p.channels[name]
	if !ok {
		return
	}
	delete(p.channels, name)
	c.unlead(ErrDeleted)
	for _, other := range p.channels {
		if !other.ephemeral {
			return
		}
	}
	p.keep = max(p.keep, keep)
}

// progress takes over what the leader said, or what an operator discarded.
func (c *Channel) progress(made progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor.apply(made)
	if !c.serving {
		c.cursor.clean() // a follower has nothing to tell
	}
}
