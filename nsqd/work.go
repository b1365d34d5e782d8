package nsqd

import (
	"sync"
	"sync/atomic"
)

// Work is what this process has done as the leader of a partition, in all its leaderships. Its
// numbers never fall, unlike those of Stats, which are the state of the partition.
type Work struct {
	Messages uint64 // committed
	Bytes    uint64 // of their bodies
	Channels map[string]ChannelWork
}

// ChannelWork is the part of one channel. A channel that is deleted leaves none.
type ChannelWork struct{ Requeued, TimedOut, Filtered uint64 }

// Work returns the work of the partition so far. Any goroutine may call it.
func (p *Partition) Work() Work {
	p.mu.RLock()
	messages := p.ledLocked()
	p.mu.RUnlock()
	return Work{Messages: messages, Bytes: uint64(p.stored.Load()), Channels: p.work.channels()}
}

// ledLocked counts the messages that were committed in the leaderships of this process.
func (p *Partition) ledLocked() uint64 {
	if !p.leading || p.committed.Sequence < p.inherited {
		return p.led
	}
	return p.led + uint64(p.committed.Sequence-p.inherited)
}

// Add adds the work of another partition.
func (w *Work) Add(o Work) {
	w.Messages += o.Messages
	w.Bytes += o.Bytes
	for name, c := range o.Channels {
		if w.Channels == nil {
			w.Channels = map[string]ChannelWork{}
		}
		sum := w.Channels[name]
		w.Channels[name] = ChannelWork{sum.Requeued + c.Requeued, sum.TimedOut + c.TimedOut, sum.Filtered + c.Filtered}
	}
}

// work holds the counts of the channels by name. A Channel is made anew by each snapshot of the
// state that a follower gets; its counts go on. The lock is a leaf.
type work struct {
	mu        sync.Mutex
	byChannel map[string]*verbCounts
}

// verbCounts counts for one channel of one partition.
type verbCounts struct{ requeues, timeouts, filtered atomic.Uint64 }

// of returns the counts of a channel.
func (w *work) of(name string) *verbCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.byChannel[name]
	if c == nil {
		c = &verbCounts{}
		if w.byChannel == nil {
			w.byChannel = map[string]*verbCounts{}
		}
		w.byChannel[name] = c
	}
	return c
}

// forget drops the counts of a channel that was deleted.
func (w *work) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byChannel, name)
}

// channels lists the channels that have counts above 0.
func (w *work) channels() map[string]ChannelWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all map[string]ChannelWork
	for name, c := range w.byChannel {
		if one := (ChannelWork{c.requeues.Load(), c.timeouts.Load(), c.filtered.Load()}); one != (ChannelWork{}) {
			if all == nil {
				all = map[string]ChannelWork{}
			}
			all[name] = one
		}
	}
	return all
}
