package nsqd

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/beorn7/perks/quantile"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Stats describes the partition as if it were a topic, with the named channel (all if empty) and perhaps its clients.
// The numbers of a channel are all of one moment, so depth + in flight + deferred + Finished = message count.
func (p *Partition) Stats(channel string, clients bool) api.TopicStats {
	t := p.topicStats()
	channels := p.list()
	if channel != "" {
		channels = slices.DeleteFunc(channels, func(c *Channel) bool { return c.name != channel })
	}
	p.prescan(channels)
	var all mergedLatency
	for _, c := range channels {
		t.Channels = append(t.Channels, c.stats(clients, &all))
	}
	t.E2E = all.result()
	return t
}

func (p *Partition) topicStats() api.TopicStats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	end := p.leadership.committed.Sequence
	t := api.TopicStats{
		TopicName:    p.topic,
		Channels:     []api.ChannelStats{},
		MessageCount: uint64(end),
		MessageBytes: uint64(p.counts.stored.Load()),
		Inherited:    uint64(p.leadership.inherited),
		Paused:       p.pause.on,
	}
	// The depth of a topic counts the messages that no channel has received.
	switch {
	case len(p.channels) == 0:
		t.Depth = int64(end - min(p.keep, end))
	case p.pause.on:
		t.Depth = int64(end - min(p.pause.barrier, end))
	}
	t.BackendDepth = t.Depth
	return t
}

// stats describes the channel and adds its latencies to those of its topic.
func (c *Channel) stats(clients bool, topic *mergedLatency) api.ChannelStats {
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

// numbers returns the statistics of one moment. The functions describe the clients of each subscriber.
func (c *Channel) numbers(topic *mergedLatency) (s api.ChannelStats, ask []func() []api.ClientStats) {
	now := c.p.o.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	depth := c.depthLocked()
	var own mergedLatency
	own.add(c.counts.latency, now)
	topic.add(c.counts.latency, now)
	for sub := range c.subs.all {
		if sub.Client != nil {
			ask = append(ask, sub.Client)
		}
	}
	return api.ChannelStats{
		ChannelName:   c.name,
		Depth:         depth,
		BackendDepth:  max(depth-int64(len(c.reader.ahead.messages)-c.reader.ahead.head), 0),
		InFlightCount: c.inFlight.len(),
		DeferredCount: len(c.cursor.Deferred.Waiting()),
		MessageCount:  c.publishedLocked(),
		Inherited:     c.serving.inherited,
		RequeueCount:  c.counts.Requeues.Load(),
		TimeoutCount:  c.counts.Timeouts.Load(),
		FilteredCount: c.counts.Filtered.Load(),
		ExpiredCount:  c.counts.Expired.Load(),
		Filter:        c.policy.filter.String(),
		ClientCount:   len(c.subs.all),
		Paused:        c.paused,
		E2E:           own.result(),
		Ordered:       c.order.on,
		Lags:          c.cursor.Confirmed() < c.limit,
		Oldest:        c.cursor.Confirmed(),
		Held:          c.inFlight.longest(now),
	}, ask
}

// publishedLocked is the number of messages published to the channel since it began.
func (c *Channel) publishedLocked() uint64 {
	return uint64(max(c.limit, c.cursor.Confirmed()) - c.cursor.Start())
}

// Deferred lists at most max of the delayed messages, by deadline.
func (c *Channel) Deferred(max int) []cursor.Entry {
	c.p.prescan([]*Channel{c})
	c.mu.Lock()
	waiting := slices.Clone(c.cursor.Deferred.Waiting())
	c.mu.Unlock()
	slices.SortFunc(waiting, func(x, y cursor.Entry) int {
		return cmp.Or(cmp.Compare(x.Deadline, y.Deadline), cmp.Compare(x.Packed, y.Packed))
	})
	return waiting[:min(len(waiting), max)]
}

// Work returns the work of the partition so far. Any goroutine may call it.
func (p *Partition) Work() Work {
	p.mu.RLock()
	messages := p.ledLocked()
	p.mu.RUnlock()
	return Work{Messages: messages, Bytes: uint64(p.counts.stored.Load()), Channels: p.work.channels()}
}

// Attached counts the subscriptions to all channels since the broker's start.
func (p *Partition) Attached() uint64 { return p.counts.attached.Load() }

// channelUse shows whether a channel is idle.
type channelUse struct {
	Channel string
	// Now: it has a consumer or a message in flight, or it or its topic is paused, which an operator will end.
	Now bool
	// Count rises with each subscription and each operation on the channel (a seek, an order, a cancelled
	// delay). A finish, requeue or touch requires a message in flight.
	Count uint64
}

// Uses lists the durable channels. It reads no log.
func (p *Partition) Uses() []channelUse {
	p.mu.RLock()
	paused := p.pause.on
	p.mu.RUnlock()
	var all []channelUse
	for _, c := range p.durable() {
		c.mu.Lock()
		used := paused || c.paused || len(c.subs.all) > 0 || c.inFlight.len() > 0
		all = append(all, channelUse{Channel: c.name, Now: used, Count: c.counts.uses})
		c.mu.Unlock()
	}
	return all
}

func (c *Channel) used() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.uses++
}

// ledLocked counts the messages that were committed in the leaderships of this process.
func (p *Partition) ledLocked() uint64 {
	if !p.leadership.active || p.leadership.committed.Sequence < p.leadership.inherited {
		return p.leadership.earlier
	}
	return p.leadership.earlier + uint64(p.leadership.committed.Sequence-p.leadership.inherited)
}

// position is the progress of a channel: its replicated state at one moment. Deferred is sorted by sequence.
type position struct {
	Channel string
	cursor.Progress
	Consumers int // subscribers
}

// Positions lists the positions of the durable channels. If a channel has more than `most` deferred messages, the
// reported position ends before the first omitted one. So it may be earlier than the channel's actual position, but
// never later.
func (p *Partition) Positions(most int) (all []position) {
	for _, c := range p.durable() {
		all = append(all, c.position(most))
	}
	return all
}

func (c *Channel) position(most int) position {
	c.mu.Lock()
	at := position{Channel: c.name, Progress: c.cursor.Full(), Consumers: len(c.subs.all)}
	c.mu.Unlock()
	slices.SortFunc(at.Deferred, func(x, y cursor.Entry) int { return cmp.Compare(x.Packed, y.Packed) })
	if len(at.Deferred) > most {
		at.Progress = at.Below(at.Deferred[most].Seq())
	}
	return at
}

// Trace returns the state of one message in every channel, sorted by name. There is no history of deliveries. The
// header decides whether a message that a channel has not read yet is for the channel.
func (p *Partition) Trace(seq ident.Sequence, header []byte) []api.ChannelTrace {
	out := []api.ChannelTrace{}
	for _, c := range p.list() {
		t, client := c.trace(seq, header)
		if client != nil { // called without the lock
			for _, s := range client() {
				t.Clients = append(t.Clients, s.RemoteAddress)
			}
			slices.Sort(t.Clients)
		}
		out = append(out, t)
	}
	return out
}

// trace returns the state of one message, and the function that describes the clients to which it is in flight.
func (c *Channel) trace(seq ident.Sequence, header []byte) (t api.ChannelTrace, client func() []api.ClientStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Channel = c.name
	e, isDeferred := c.cursor.Deferred.Get(seq)
	f, isInFlight := c.inFlight.bySeq[seq]
	switch {
	case isInFlight && f.sub == &c.dead.hold:
		t.State, t.Attempts = api.TraceDying, f.attempts
	case isInFlight:
		t.State, t.Attempts, t.Deadline = api.TraceInFlight, f.attempts, f.deadline
		if f.sub.channel == c {
			client = f.sub.Client
		}
	case isDeferred && e.Deadline > c.p.o.Now():
		t.State, t.Attempts, t.Deadline = api.TraceDeferred, e.Attempts(), e.Deadline
	case isDeferred:
		t.State, t.Attempts = api.TraceWaiting, e.Attempts()
	case seq < c.cursor.Start():
		t.State = api.TraceBefore
	case c.cursor.Settled(seq):
		t.State = api.TraceFinished
	case !c.selectionLocked().Accepts(header):
		t.State = api.TraceSkipped
	default:
		t.State = api.TraceWaiting
	}
	return t, client
}

// Work counts the work of this process as the leader of a partition, over all its leaderships. Its numbers never fall,
// unlike those of Stats, which are the state of the partition.
type Work struct {
	Messages uint64 // committed
	Bytes    uint64 // of their bodies
	Channels map[string]channelWork
}

// channelWork is the work for one channel. It is dropped with the channel.
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

// works holds the counts of the channels by name (*verbCounts). They outlive the Channels of a follower.
type works struct{ byChannel sync.Map }

// verbCounts counts for one channel of one partition.
type verbCounts struct{ Requeues, Timeouts, Filtered, Expired atomic.Uint64 }

func (w *works) of(name string) *verbCounts {
	c, _ := w.byChannel.LoadOrStore(name, &verbCounts{})
	return c.(*verbCounts)
}

func (w *works) forget(name string) { w.byChannel.Delete(name) }

// channels lists the channels that have counts above 0.
func (w *works) channels() map[string]channelWork {
	var all map[string]channelWork
	for name, counts := range w.byChannel.Range {
		c := counts.(*verbCounts)
		if one := (channelWork{c.Requeues.Load(), c.Timeouts.Load(), c.Filtered.Load(), c.Expired.Load()}); one != (channelWork{}) {
			if all == nil {
				all = map[string]channelWork{}
			}
			all[name.(string)] = one
		}
	}
	return all
}

// quantileError is the error allowed in rank. It is NSQ's.
const quantileError = 0.01

// latency estimates percentiles of the time from publish to finish over a window. It has two
// streams, each fed for half of the window, so that old values drop out.
type latency struct {
	quantiles []float64
	targets   map[float64]float64
	halfNS    int64
	rotatedAt int64
	now, old  *quantile.Stream
}

// newLatency estimates percentiles, 0–1, over a window in ns that begins at `at`. Without percentiles it returns nil.
func newLatency(percentiles []float64, windowNS, at int64) *latency {
	if len(percentiles) == 0 {
		return nil
	}
	targets := make(map[float64]float64, len(percentiles))
	for _, q := range percentiles {
		targets[q] = quantileError
	}
	return &latency{
		quantiles: percentiles,
		targets:   targets,
		halfNS:    windowNS / 2,
		rotatedAt: at,
		now:       quantile.NewTargeted(targets),
		old:       quantile.NewTargeted(targets),
	}
}

// insert adds one value in ns, measured at a time in ns.
func (l *latency) insert(ns, at int64) {
	l.rotate(at)
	l.now.Insert(float64(ns))
}

// rotate drops the values that are older than the window.
func (l *latency) rotate(at int64) {
	for i := 0; i < 2 && at-l.rotatedAt >= l.halfNS; i++ {
		l.now, l.old = l.old, l.now
		l.now.Reset()
		l.rotatedAt += l.halfNS
	}
	if at-l.rotatedAt >= l.halfNS {
		l.rotatedAt = at
	}
}

// mergedLatency is the estimate over several channels.
type mergedLatency struct {
	quantiles []float64
	all       *quantile.Stream // nil: there are no measurements
	count     int
}

// add adds the values of one channel; nil: it has none.
func (m *mergedLatency) add(l *latency, at int64) {
	if l == nil {
		return
	}
	if m.all == nil {
		m.quantiles, m.all = l.quantiles, quantile.NewTargeted(l.targets)
	}
	l.rotate(at)
	m.all.Merge(l.now.Samples())
	m.all.Merge(l.old.Samples())
	m.count += l.now.Count() + l.old.Count()
}

// result returns the percentiles in nanoseconds, or none (JSON null) if they are not measured.
func (m *mergedLatency) result() api.E2ELatency {
	r := api.E2ELatency{Count: m.count}
	if m.all == nil {
		return r
	}
	for _, q := range m.quantiles {
		r.Percentiles = append(r.Percentiles, api.Percentile{Quantile: q, Value: m.all.Query(q)})
	}
	return r
}
