package nsqd

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Stats describes the partition like a topic of its own, with the named channel (all if empty) and,
// if clients is set, its clients. The numbers of one channel belong to one moment: depth + in
// flight + deferred + Finished = message count.
func (p *Partition) Stats(channel string, clients bool) api.TopicStats {
	t := p.topicStats()
	channels := p.list()
	if channel != "" {
		channels = slices.DeleteFunc(channels, func(c *Channel) bool { return c.name != channel })
	}
	p.prescan(channels)
	var all Merged
	for _, c := range channels {
		t.Channels = append(t.Channels, c.stats(clients, &all))
	}
	t.E2E = all.Result()
	return t
}

func (p *Partition) topicStats() api.TopicStats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	end := p.committed.Sequence
	t := api.TopicStats{
		TopicName:    p.topic,
		Channels:     []api.ChannelStats{},
		MessageCount: uint64(end),
		MessageBytes: uint64(p.stored.Load()),
		Inherited:    uint64(p.inherited),
		Paused:       p.paused,
	}
	// The depth of a topic counts the messages that no channel has received.
	switch {
	case len(p.channels) == 0:
		t.Depth = int64(end - min(p.keep, end))
	case p.paused:
		t.Depth = int64(end - min(p.barrier, end))
	}
	t.BackendDepth = t.Depth
	return t
}

// stats describes the channel and adds its latencies to those of its topic.
func (c *Channel) stats(clients bool, topic *Merged) api.ChannelStats {
	s, ask := c.numbers(topic)
	if clients {
		s.Clients = []api.ClientStats{}
		for _, f := range ask { // called without the lock
			s.Clients = append(s.Clients, f()...)
		}
		slices.SortFunc(s.Clients, func(a, b api.ClientStats) int { return cmp.Compare(a.RemoteAddress, b.RemoteAddress) })
	}
	return s
}

// numbers returns the statistics of one moment. ask are the functions by which subscribers describe
// themselves.
func (c *Channel) numbers(topic *Merged) (s api.ChannelStats, ask []func() []api.ClientStats) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	depth := c.depthLocked()
	var own Merged
	own.Add(c.latency, now)
	topic.Add(c.latency, now)
	for sub := range c.subs {
		if sub.Client != nil {
			ask = append(ask, sub.Client)
		}
	}
	return api.ChannelStats{
		ChannelName:   c.name,
		Depth:         depth,
		BackendDepth:  max(depth-int64(len(c.ahead.messages)-c.ahead.head), 0),
		InFlightCount: c.inFlight.len(),
		DeferredCount: len(c.cursor.Deferred.Waiting()),
		MessageCount:  c.publishedLocked(),
		Inherited:     c.inherited,
		RequeueCount:  c.verbs.Requeues.Load(),
		TimeoutCount:  c.verbs.Timeouts.Load(),
		FilteredCount: c.verbs.Filtered.Load(),
		ExpiredCount:  c.verbs.Expired.Load(),
		Filter:        c.filter.String(),
		ClientCount:   len(c.subs),
		Paused:        c.paused,
		E2E:           own.Result(),
		Ordered:       c.ordered,
		Lags:          c.cursor.Confirmed() < c.limit,
		Oldest:        c.cursor.Confirmed(),
		Held:          c.inFlight.held(now),
	}, ask
}

// publishedLocked is the number of messages published to the channel since it began.
func (c *Channel) publishedLocked() uint64 {
	return uint64(max(c.limit, c.cursor.Confirmed()) - c.cursor.Start())
}

// Deferred is one delayed message.
type Deferred struct {
	ID         api.MessageID
	Sequence   ident.Sequence
	DeadlineNS int64
	Attempts   uint16
}

// Deferred lists at most max of the delayed messages, by deadline.
func (c *Channel) Deferred(max int) []Deferred {
	c.p.prescan([]*Channel{c})
	c.mu.Lock()
	waiting := slices.Clone(c.cursor.Deferred.Waiting())
	c.mu.Unlock()
	slices.SortFunc(waiting, func(x, y cursor.Entry) int {
		return cmp.Or(cmp.Compare(x.Deadline, y.Deadline), cmp.Compare(x.Packed, y.Packed))
	})
	all := make([]Deferred, min(len(waiting), max))
	for i := range all {
		e := waiting[i]
		all[i] = Deferred{ID: api.MessageIDOf(c.p.id, e.Seq()), Sequence: e.Seq(), DeadlineNS: e.Deadline, Attempts: e.Attempts()}
	}
	return all
}

// Work returns the work of the partition so far. Any goroutine may call it.
func (p *Partition) Work() Work {
	p.mu.RLock()
	messages := p.ledLocked()
	p.mu.RUnlock()
	return Work{Messages: messages, Bytes: uint64(p.stored.Load()), Channels: p.work.Channels()}
}

// Attached counts the subscriptions to all channels since the broker's start, those that have ended
// included.
func (p *Partition) Attached() uint64 { return p.attached.Load() }

// ChannelUse is the part of a channel's state by which its idleness is judged.
type ChannelUse struct {
	Channel string
	// Now: it has a consumer, or a message in flight, or it or its topic is paused: an operator will end that.
	Now bool
	// Count rises with each subscription and each operation on the channel (a seek, an order, a cancelled
	// delay), also of one that has ended. A finish, requeue or touch takes a message in flight.
	Count uint64
}

// Uses lists the durable channels. It reads no log.
func (p *Partition) Uses() []ChannelUse {
	p.mu.RLock()
	paused := p.paused
	p.mu.RUnlock()
	var all []ChannelUse
	for _, c := range p.list() {
		if !c.ephemeral {
			all = append(all, c.use(paused))
		}
	}
	return all
}

func (c *Channel) use(paused bool) ChannelUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ChannelUse{Channel: c.name, Now: paused || c.paused || len(c.subs) > 0 || c.inFlight.len() > 0, Count: c.uses}
}

// used notes an operation on the channel.
func (c *Channel) used() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
}

// ledLocked counts the messages that were committed in the leaderships of this process.
func (p *Partition) ledLocked() uint64 {
	if !p.leading || p.committed.Sequence < p.inherited {
		return p.led
	}
	return p.led + uint64(p.committed.Sequence-p.inherited)
}
