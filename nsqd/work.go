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
	Channels map[string]channelWork
}

// channelWork is the part of one channel. A channel that is deleted leaves none.
type channelWork struct{ Requeued, TimedOut, Filtered, Expired uint64 }

// Add adds the work of another partition.
func (w *Work) Add(o Work) {
	w.Messages += o.Messages
	w.Bytes += o.Bytes
	for name, c := range o.Channels {
		if w.Channels == nil {
			w.Channels = map[string]channelWork{}
		}
		sum := w.Channels[name]
		w.Channels[name] = channelWork{sum.Requeued + c.Requeued, sum.TimedOut + c.TimedOut, sum.Filtered + c.Filtered, sum.Expired + c.Expired}
	}
}

// works holds the counts of the channels by name. A follower creates its Channels again for each snapshot of
// the state; the counts outlive them. The lock is a leaf.
type works struct {
	mu        sync.Mutex
	byChannel map[string]*verbCounts
}

// verbCounts counts for one channel of one partition.
type verbCounts struct{ Requeues, Timeouts, Filtered, Expired atomic.Uint64 }

// of returns the counts of a channel.
func (w *works) of(name string) *verbCounts {
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
func (w *works) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byChannel, name)
}

// channels lists the channels that have counts above 0.
func (w *works) channels() map[string]channelWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all map[string]channelWork
	for name, c := range w.byChannel {
		if one := (channelWork{c.Requeues.Load(), c.Timeouts.Load(), c.Filtered.Load(), c.Expired.Load()}); one != (channelWork{}) {
			if all == nil {
				all = map[string]channelWork{}
			}
			all[name] = one
		}
	}
	return all
}
