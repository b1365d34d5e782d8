package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Snapshot encodes the whole replicated state. It may include changes that no delta has carried
// yet. Deltas hold absolute values, so it is harmless to apply them on top.
func (p *Partition) Snapshot() []byte {
	channels := p.list()
	p.mu.RLock()
	s := state.Snapshot{Flags: flagIf(p.paused, state.FlagPaused), Barrier: p.barrier, Keep: p.keep}
	p.mu.RUnlock()
	for _, c := range channels {
		if c.ephemeral {
			continue
		}
		c.mu.Lock()
		s.Channels = append(s.Channels, state.Channel{
			Name:     c.name,
			ID:       c.id,
			Flags:    flagIf(c.ordered, state.FlagOrdered) | flagIf(c.paused, state.FlagPaused),
			Start:    c.cursor.Start(),
			Progress: c.cursor.Full(),
		})
		c.mu.Unlock()
	}
	s.Relocated = p.relocations.List()
	return state.AppendSnapshot(nil, s)
}

// applyLocked applies one explicit change of the state. The leader, followers and recovery all use
// it.
func (p *Partition) applyLocked(r state.Record) {
	switch r.Kind {
	case state.KindBarrier:
		p.paused, p.barrier = r.Flags&state.FlagPaused != 0, r.At
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
			p.relocations.ForgetFrom(r.Offset, r.Seqs)
		} else {
			p.relocations.Add(r.Offset, r.Seqs, r.Flags&state.FlagSettled != 0)
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
		c.pause(r.Flags&state.FlagPaused != 0)
	case state.KindOrder:
		c.order(r.Flags&state.FlagOrdered != 0)
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
	if !p.paused || end <= p.barrier {
		return
	}
	for _, c := range p.channels {
		c.progress(cursor.Progress{Settled: []cursor.Span{{From: p.barrier, To: end}}})
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
	p.work.Forget(name)
	c.unlead(ErrDeleted)
	for _, other := range p.channels {
		if !other.ephemeral {
			return
		}
	}
	p.keep = max(p.keep, keep)
}

// progress applies progress that the leader reported, or that an operator caused by discarding
// messages.
func (c *Channel) progress(made cursor.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor.Apply(made)
	if !c.serving {
		c.cursor.ClearDelta() // a follower sends no deltas
		return
	}
	c.offerLocked(c.p.o.Now()) // an ordered channel may have waited for what is cancelled
}
