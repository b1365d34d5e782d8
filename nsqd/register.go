package nsqd

import (
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Snapshot encodes the whole replicated state. Later deltas may repeat parts of it, which is harmless.
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
	p.setChannelLocked(r.Channel, c)
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

// progress applies progress from the leader, or from an operator who discards messages.
func (c *Channel) progress(made cursor.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor.Apply(made)
	if !c.serving.leads {
		c.cursor.ClearDelta() // a follower sends no deltas
		return
	}
	c.offerLocked(c.p.o.Now()) // an ordered channel may have waited for the cancelled messages
}

// Decoding a snapshot with a million deferred messages takes a quarter of a second. Replace runs on a core loop, whose
// other partitions would wait. So it only queues a large snapshot and the deltas that follow it. The next caller that
// needs the channels, or the broker's clock, applies the queue; an election waits for that.

// applyAtOnceBytes is the largest snapshot that Replace applies immediately.
const applyAtOnceBytes = 64 << 10

// updates is the queue of updates that are applied when the channels are needed.
type updates struct {
	any      atomic.Bool     // queue is not empty
	applying sync.Mutex      // held while the queue is applied
	queue    []pendingUpdate // guarded by Partition.mu
}

// pendingUpdate is an update that the register has received but not yet applied to the channels.
type pendingUpdate struct {
	bytes []byte
	whole bool // a snapshot; otherwise a delta
}

// Replace replaces the current state with a snapshot. A malformed snapshot is logged and changes nothing.
func (p *Partition) Replace(full []byte) {
	p.mu.Lock()
	small := len(p.updates.queue) == 0 && len(full) <= applyAtOnceBytes
	p.updates.queue = append(p.updates.queue, pendingUpdate{bytes: full, whole: true})
	p.updates.any.Store(true)
	p.mu.Unlock()
	if small {
		p.ApplyPending()
	}
}

// Apply applies a delta on a follower or at recovery. A malformed delta is logged and changes nothing.
func (p *Partition) Apply(delta []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.updates.queue) > 0 {
		p.updates.queue = append(p.updates.queue, pendingUpdate{bytes: delta})
		return
	}
	p.applyDeltaLocked(delta)
}

func (p *Partition) applyDeltaLocked(delta []byte) {
	records, err := state.DecodeDelta(delta)
	if err != nil {
		p.report("", "ignored a malformed delta of the channel state", err)
		return
	}
	for _, r := range records {
		p.applyLocked(r)
	}
}

// ApplyPending applies the queued updates to the channels. The broker must call it regularly, from any goroutine.
func (p *Partition) ApplyPending() {
	if !p.updates.any.Load() {
		return
	}
	p.updates.applying.Lock()
	defer p.updates.applying.Unlock()
	for snapshot := p.nextSnapshot(); snapshot != nil; snapshot = p.nextSnapshot() {
		p.install(snapshot)
	}
}

// nextSnapshot applies deltas up to the next snapshot and returns it, nil if the queue is empty. The snapshot stays in
// the queue, so that later updates follow it while it is decoded.
func (p *Partition) nextSnapshot() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.updates.queue) > 0 && !p.updates.queue[0].whole {
		p.applyDeltaLocked(p.updates.queue[0].bytes)
		p.updates.queue = p.updates.queue[1:]
	}
	if len(p.updates.queue) == 0 {
		p.updates.queue = nil
		p.updates.any.Store(false)
		return nil
	}
	return p.updates.queue[0].bytes
}

// install replaces the state with a snapshot. It decodes without the lock.
func (p *Partition) install(full []byte) {
	s, err := state.DecodeSnapshot(full)
	var channels map[string]*Channel
	if len(s.Channels) > 0 {
		channels = make(map[string]*Channel, len(s.Channels))
	}
	for _, saved := range s.Channels {
		c := newChannel(p, saved.Name, saved.ID, saved.Flags&state.FlagOrdered != 0, saved.Progress.Confirmed)
		c.paused = saved.Flags&state.FlagPaused != 0
		c.cursor.Restore(saved.Start, saved.Progress)
		channels[saved.Name] = c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates.queue = p.updates.queue[1:]
	if err != nil {
		p.report("", "ignored a malformed snapshot of the channel state", err)
		return
	}
	p.pause.on, p.pause.barrier, p.keep = s.Flags&state.FlagPaused != 0, s.Barrier, s.Keep
	p.relocations.replace(s.Relocated)
	p.channels = channels
}
