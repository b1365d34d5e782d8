package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Snapshot encodes the whole replicated state. It may include changes that no delta contains yet. Deltas hold absolute
// values, so it is harmless to apply them on top.
func (p *Partition) Snapshot() []byte {
	channels := p.durable()
	p.mu.RLock()
	s := state.Snapshot{Flags: flagIf(p.pause.on, state.FlagPaused), Barrier: p.pause.barrier, Keep: p.keep}
	p.mu.RUnlock()
	for _, c := range channels {
		c.mu.Lock()
		s.Channels = append(s.Channels, state.Channel{
			Name:     c.name,
			ID:       c.id,
			Flags:    flagIf(c.order.on, state.FlagOrdered) | flagIf(c.paused, state.FlagPaused),
			Start:    c.cursor.Start(),
			Progress: c.cursor.Full(),
		})
		c.mu.Unlock()
	}
	s.Relocated = p.relocations.list()
	return state.AppendSnapshot(nil, s)
}

// applyLocked applies one change of the state, on the leader, on followers and at recovery.
func (p *Partition) applyLocked(r state.Record) {
	switch r.Kind {
	case state.KindBarrier:
		p.pause.on, p.pause.barrier = r.Flags&state.FlagPaused != 0, r.At
		p.raiseLocked()
		return
	case state.KindKeep:
		if r.Flags&state.FlagBack != 0 {
			p.keep = min(p.keep, r.At)
		} else {
			p.emptyLocked(r.At)
		}
		return
	case state.KindDelete:
		p.deleteLocked(r.Channel, r.At)
		return
	case state.KindRelocate:
		if r.Flags&state.FlagBeyond != 0 {
			p.relocations.forgetFrom(r.Offset, r.Seqs)
		} else {
			p.relocations.add(r.Offset, r.Seqs, r.Flags&state.FlagSettled != 0)
		}
		return
	}
	c := p.ensureLocked(r)
	switch r.Kind {
	case state.KindProgress:
		c.progress(r.Progress)
	case state.KindSeek:
		c.seek(r.At)
	case state.KindPause:
		c.setPaused(r.Flags&state.FlagPaused != 0)
	case state.KindOrder:
		c.setOrdered(r.Flags&state.FlagOrdered != 0)
	}
}

// ensureLocked finds the channel, or creates it at the position in the record.
func (p *Partition) ensureLocked(r state.Record) *Channel {
	if c, ok := p.channels[r.Channel]; ok {
		return c
	}
	at := r.At
	if r.Kind == state.KindProgress {
		at = r.Progress.Confirmed
	}
	c := newChannel(p, r.Channel, r.ID, r.Kind == state.KindCreate && r.Flags&state.FlagOrdered != 0, at)
	p.channels[r.Channel] = c
	return c
}

// raiseLocked passes the limit to all channels after it may have risen.
func (p *Partition) raiseLocked() {
	for _, c := range p.channels {
		c.advance(p.limitLocked())
	}
}

// emptyLocked settles for all channels the messages that the topic's pause withheld from them.
func (p *Partition) emptyLocked(end ident.Sequence) {
	p.keep = max(p.keep, end)
	if !p.pause.on || end <= p.pause.barrier {
		return
	}
	for _, c := range p.channels {
		c.progress(cursor.Progress{Settled: []cursor.Span{{From: p.pause.barrier, To: end}}})
	}
	p.pause.barrier = end
	p.raiseLocked()
}

func (p *Partition) deleteLocked(name string, keep ident.Sequence) {
	c, ok := p.channels[name]
	if !ok {
		return
	}
	delete(p.channels, name)
	p.work.forget(name)
	c.unlead(ErrDeleted)
	for _, other := range p.channels {
		if !other.ephemeral {
			return
		}
	}
	p.keep = max(p.keep, keep)
}

// progress applies progress from the leader, or of an operator who discards messages.
func (c *Channel) progress(made cursor.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor.Apply(made)
	if !c.serving.leads {
		c.cursor.ClearDelta() // a follower sends no deltas
		return
	}
	c.offerLocked(c.p.o.Now()) // an ordered channel may have waited for what is cancelled
}
