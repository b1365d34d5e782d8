package maintenance

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// Idleness measures how long the partitions led here, and the channels in them, have not been used, for topics that are
// deleted when idle (metadata.TopicOptions.IdleMS), or whose channels are (ChannelIdleMS). It measures by the monotonic clock
// of this process, from the first request of a controller on: a new leader, a restart and a change of the topic's key restart
// the measurement, so the reported idle time is a lower bound.
//
// A use that begins and ends between two requests raises a counter: the end of the log, the subscriptions, or the operations
// on a channel.
type Idleness struct {
	*Broker
	mu       sync.Mutex
	unused   unused[*engine.Partition, trace]
	unusedIn unused[channelIn, channelTrace]
}

// unused records the partitions, or channels, that were idle at the last request.
type unused[K, T comparable] map[K]sighting[T]

// sighting is the state of the counters since a moment.
type sighting[T comparable] struct {
	trace T
	since time.Time
}

// record notes that k was idle, and returns how long its counters have not changed, in ms.
func (u unused[K, T]) record(k K, t T, before unused[K, T]) (ms int64) {
	s, ok := before[k]
	if !ok || s.trace != t {
		s = sighting[T]{t, time.Now()}
	}
	u[k] = s
	return time.Since(s.since).Milliseconds()
}

// trace holds the counters that each use of a partition raises.
type trace struct {
	epoch    ident.Epoch    // of this leadership
	end      ident.Sequence // every put raises it
	attached uint64         // every subscription raises it
	revision int64          // of the topic's key: every operation on the topic raises it
}

type channelIn struct {
	p       *engine.Partition
	channel string
}

// channelTrace changes with each use of a channel.
type channelTrace struct {
	epoch    ident.Epoch // of this leadership
	count    uint64      // Count of nsqd.Partition.Uses
	id       uint64      // of the channel
	revision int64       // of its key: a change of its policy raises it
	idleMS   int64       // the option of its topic: a change restarts the time
}

// Measure examines the partitions that are led here, of a topic or of all (calls.Idle), and their channels. It omits those in
// use, and channels that have not been idle for the time in their topic's option.
func (i *Idleness) Measure(req calls.IdleRequest) (r calls.IdleReply) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, channels := i.unused, i.unusedIn
	if req.Topic == 0 { // forget the partitions that are no longer led here
		i.unused, i.unusedIn = unused[*engine.Partition, trace]{}, unused[channelIn, channelTrace]{}
	}
	for _, p := range i.Engine.Partitions() {
		if req.Topic != 0 && p.ID().Topic != req.Topic {
			continue
		}
		state, ok := i.Catalog.Topic(p.Topic())
		if !ok || state.ID != p.ID().Topic || !p.Leading() || p.Trashed() {
			delete(i.unused, p)
			continue
		}
		r.Channels = append(r.Channels, i.measureChannels(p, state, channels)...)
		t, inUse := activityOf(p, state)
		if inUse {
			delete(i.unused, p)
			continue
		}
		r.Partitions = append(r.Partitions, calls.IdlePartition{Partition: p.ID(), Epoch: t.epoch, IdleMS: i.unused.record(p, t, before)})
	}
	return r
}

func (i *Idleness) measureChannels(p *engine.Partition, state metadata.TopicState, before unused[channelIn, channelTrace]) (idle []calls.IdleChannel) {
	if state.Options.ChannelIdleMS <= 0 {
		return nil
	}
	epoch, keys := p.View().Epoch, i.Catalog.Channels(state.ID)
	for _, use := range p.Queue().Uses() {
		at := channelIn{p, use.Channel}
		key, there := keys[use.Channel]
		if use.Now || !there || key.Deleting {
			delete(i.unusedIn, at)
			continue
		}
		t := channelTrace{epoch, use.Count, key.ID, key.Revision, state.Options.ChannelIdleMS}
		if since := i.unusedIn.record(at, t, before); since >= t.idleMS {
			idle = append(idle, calls.IdleChannel{Partition: p.ID(), Epoch: epoch, Channel: use.Channel, ID: key.ID, IdleMS: since})
		}
	}
	return idle
}

// activityOf reports whether a partition is in use, or its topic is never idle. It reads the counters first, so that the next
// request detects a use that begins later.
func activityOf(p *engine.Partition, state metadata.TopicState) (t trace, inUse bool) {
	v := p.View()
	if state.Options.IdleMS <= 0 || v.Held+v.PendingBytes > 0 {
		return t, true
	}
	t = trace{epoch: v.Epoch, end: v.End.Sequence, attached: p.Queue().Attached(), revision: state.Revision}
	return t, topicInUse(p.Queue().Stats("", false))
}

// topicInUse reports whether a partition has a consumer or an unfinished message, or is paused.
func topicInUse(s api.TopicStats) bool {
	for _, c := range s.Channels {
		if c.ClientCount > 0 || c.Depth != 0 || c.InFlightCount != 0 || c.DeferredCount != 0 || c.Paused {
			return true
		}
	}
	return s.Paused || s.Depth != 0
}
