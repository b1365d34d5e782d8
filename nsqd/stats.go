package nsqd

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Stats describes the partition as a topic of its own, with the channel named
// (all if empty) and, if wanted, its clients. Numbers of one channel belong to
// one moment: depth + in flight + deferred + Finished = message count.
func (p *Partition) Stats(channel string, clients bool) edge.TopicStats {
	t := p.topicStats()
	channels := p.list()
	if channel != "" {
		channels = slices.DeleteFunc(channels, func(c *Channel) bool { return c.name != channel })
	}
	p.scout(channels)
	var all merged
	for _, c := range channels {
		t.Channels = append(t.Channels, c.stats(clients, &all))
	}
	t.E2E = all.result()
	return t
}

func (p *Partition) topicStats() edge.TopicStats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	end := p.committed.Sequence
	t := edge.TopicStats{
		TopicName:    p.topic,
		Channels:     []edge.ChannelStats{},
		MessageCount: uint64(end),
		MessageBytes: uint64(p.stored.Load()),
		Inherited:    uint64(p.inherited),
		Paused:       p.paused,
	}
	// The depth of a topic is what no channel has been given.
	switch {
	case len(p.channels) == 0:
		t.Depth = int64(end - min(p.keep, end))
	case p.paused:
		t.Depth = int64(end - min(p.barrier, end))
	}
	t.BackendDepth = t.Depth
	return t
}

// stats adds the channel's latencies to those of its topic.
func (c *Channel) stats(clients bool, topic *merged) edge.ChannelStats {
	s, ask := c.numbers(topic)
	if clients {
		s.Clients = []edge.ClientStats{}
		for _, f := range ask { // without the lock
			s.Clients = append(s.Clients, f()...)
		}
		slices.SortFunc(s.Clients, func(a, b edge.ClientStats) int { return cmp.Compare(a.RemoteAddress, b.RemoteAddress) })
	}
	return s
}

// numbers are of one moment; ask are the subscribers' descriptions of themselves.
func (c *Channel) numbers(topic *merged) (s edge.ChannelStats, ask []func() []edge.ClientStats) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	depth := c.depthLocked()
	var own merged
	own.add(c.latency, now)
	topic.add(c.latency, now)
	for sub := range c.subs {
		if sub.Client != nil {
			ask = append(ask, sub.Client)
		}
	}
	return edge.ChannelStats{
		ChannelName:   c.name,
		Depth:         depth,
		BackendDepth:  max(depth-int64(len(c.ahead.messages)-c.ahead.head), 0),
		InFlightCount: c.flights.len(),
		DeferredCount: len(c.cursor.aside.heap),
		MessageCount:  c.publishedLocked(),
		Inherited:     c.inherited,
		RequeueCount:  c.requeues,
		TimeoutCount:  c.timeouts,
		ClientCount:   len(c.subs),
		Paused:        c.paused,
		E2E:           own.result(),
	}, ask
}

// publishedLocked is how many messages the channel was given since it began.
func (c *Channel) publishedLocked() uint64 {
	return uint64(max(c.limit, c.cursor.confirmed) - c.cursor.start)
}

// Finished is how many messages of the channel are finished for good, those that
// sampling, emptying or an ephemeral channel's bound discarded included.
func (c *Channel) Finished() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.finishedCount()
}

// Skipped is how many messages retention took before the channel had read them.
func (c *Channel) Skipped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skipped
}

// Deferred is one delayed message.
type Deferred struct {
	ID         edge.MessageID
	Sequence   ident.Sequence
	DeadlineNS int64
	Attempts   uint16
}

// Deferred lists at most max of the delayed messages, by deadline.
func (c *Channel) Deferred(max int) []Deferred {
	c.p.scout([]*Channel{c})
	c.mu.Lock()
	waiting := slices.Clone(c.cursor.aside.heap)
	c.mu.Unlock()
	slices.SortFunc(waiting, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.deadline, y.deadline), cmp.Compare(x.mark, y.mark))
	})
	all := make([]Deferred, min(len(waiting), max))
	for i := range all {
		e := waiting[i]
		all[i] = Deferred{ID: ID(c.p.id, e.seq()), Sequence: e.seq(), DeadlineNS: e.deadline, Attempts: e.attempts()}
	}
	return all
}
