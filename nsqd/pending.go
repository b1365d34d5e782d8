package nsqd

import (
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/nsqd/state"
)

// Decoding a snapshot with a million deferred messages takes a quarter of a second. Replace runs on
// a core loop, where all other partitions of the loop would wait for it. So Replace only queues a
// large snapshot, together with the deltas that follow it. The next caller that needs the channels
// applies the queue. The broker's clock calls ApplyPending, so that happens soon even without a
// caller. Only a follower that is elected before that makes its core loop wait.

// applyAtOnceBytes is the largest snapshot that Replace applies itself.
const applyAtOnceBytes = 64 << 10

// updates are queued until the channels are needed.
type updates struct {
	any      atomic.Bool     // queue is not empty
	applying sync.Mutex      // held while the queue is applied
	queue    []pendingUpdate // guarded by Partition.mu
}

// pendingUpdate is an update that the register has received and the channels do not show yet.
type pendingUpdate struct {
	bytes []byte
	whole bool // a snapshot, else a delta
}

// Replace replaces the present state by a snapshot. A malformed snapshot is logged and changes
// nothing.
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

// Apply applies a delta on a follower or at recovery. A malformed delta is logged and changes
// nothing.
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
		p.report("", "a delta of the channel state is ignored", err)
		return
	}
	for _, r := range records {
		p.applyLocked(r)
	}
}

// ApplyPending applies the queued snapshot and deltas to the channels. Without any it is cheap. The
// broker must call it regularly, or the queue grows. Any goroutine.
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

// nextSnapshot applies deltas up to the next snapshot and returns that snapshot, nil if the queue
// is empty. The snapshot stays in the queue, so that updates that arrive while it is decoded follow
// it.
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

// install makes a snapshot the state. It decodes without the lock.
func (p *Partition) install(full []byte) {
	s, err := state.DecodeSnapshot(full)
	channels := make(map[string]*Channel, len(s.Channels))
	for _, saved := range s.Channels {
		channels[saved.Name] = p.restored(saved)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates.queue = p.updates.queue[1:]
	if err != nil {
		p.report("", "a snapshot of the channel state is ignored; the channels keep their state", err)
		return
	}
	p.pause.on, p.pause.barrier, p.keep = s.Flags&state.FlagPaused != 0, s.Barrier, s.Keep
	p.relocations.replace(s.Relocated)
	p.channels = channels
}

// restored builds a channel from its entry in a snapshot.
func (p *Partition) restored(s state.Channel) *Channel {
	c := newChannel(p, s.Name, s.ID, s.Flags&state.FlagOrdered != 0, s.Progress.Confirmed)
	c.paused = s.Flags&state.FlagPaused != 0
	c.cursor.Restore(s.Start, s.Progress)
	return c
}
