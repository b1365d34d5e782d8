package query

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd"
)

// followersWait bounds how long a scrape waits for the core loops: a hung loop must not suppress the metrics that show it.
const followersWait = 100 * time.Millisecond

// TopicMetrics are the topics for a scrape: the depths of the partitions led here, and the work of this process as a leader,
// also of partitions that it no longer leads.
func (i *Inspector) TopicMetrics() []metrics.Topic {
	rows := topicRows{}
	now := time.Now()
	for _, p := range i.o.Engine.Partitions() {
		if p.Trashed() {
			continue
		}
		done := p.Queue().Work()
		if p.Leading() {
			row := rows.of(p.Topic())
			stats := p.Queue().Stats("", false)
			row.Depth += stats.Depth
			for _, c := range stats.Channels {
				row.add(c, i.lag(p, c, now))
			}
		} else if done.Messages == 0 && len(done.Channels) == 0 {
			continue // a follower that never led has no series
		}
		rows.of(p.Topic()).worked(done)
	}
	there := func(topic string) bool { _, ok := i.o.Catalog.Topic(topic); return ok }
	for topic, done := range i.o.Engine.PastWork(there) {
		rows.of(topic).worked(done)
	}
	return rows.list()
}

// lag is the age of the oldest message that a channel has neither finished nor deferred, by the index of the log, without
// reading a message. A message that came back (a requeue, a timeout, a consumer that left) is deferred from then on; while it
// is in flight again, the time since its delivery counts.
func (i *Inspector) lag(p *engine.Partition, c api.ChannelStats, now time.Time) time.Duration {
	if !c.Lags {
		return c.Held
	}
	r, ok := p.Store().Index().AtSequence(c.Oldest)
	if !ok {
		return c.Held
	}
	return max(now.Sub(time.UnixMilli(r.TimeMS)), c.Held) // clocks of brokers differ
}

// topicRows collects the rows of a scrape by topic.
type topicRows map[string]*topicRow

type topicRow struct {
	metrics.Topic
	channels map[string]*metrics.Channel
}

func (r topicRows) of(topic string) *topicRow {
	row := r[topic]
	if row == nil {
		row = &topicRow{Topic: metrics.Topic{Name: topic}, channels: map[string]*metrics.Channel{}}
		r[topic] = row
	}
	return row
}

func (r topicRows) list() []metrics.Topic {
	out := make([]metrics.Topic, 0, len(r))
	for _, row := range r {
		for _, c := range row.channels {
			row.Channels = append(row.Channels, *c)
		}
		slices.SortFunc(row.Channels, func(a, b metrics.Channel) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, row.Topic)
	}
	return out
}

func (r *topicRow) channel(name string) *metrics.Channel {
	c := r.channels[name]
	if c == nil {
		c = &metrics.Channel{Name: name}
		r.channels[name] = c
	}
	return c
}

// add adds the state of a channel in a partition that is led here.
func (r *topicRow) add(s api.ChannelStats, lag time.Duration) {
	c := r.channel(s.ChannelName)
	c.Depth += s.Depth
	c.InFlight += int64(s.InFlightCount)
	c.Deferred += int64(s.DeferredCount)
	c.Clients = max(c.Clients, s.ClientCount) // a consumer is attached to every partition
	c.Lag = max(c.Lag, lag)
	c.Paused = c.Paused || s.Paused
}

func (r *topicRow) worked(done nsqd.Work) {
	r.Messages += done.Messages
	r.Bytes += done.Bytes
	for name, w := range done.Channels {
		c := r.channel(name)
		c.Requeued += w.Requeued
		c.TimedOut += w.TimedOut
		c.Filtered += w.Filtered
		c.Expired += w.Expired
	}
}

// Replication is the state of the partitions led here, for a scrape.
type Replication struct {
	Hosted, Led, UnderReplicated, BelowMin, SingleCopy int
	PendingBytes                                       int64
	// LagBytes and LagTime are the lag of the replicas on other brokers, by broker: the sum of the bytes, and the longest time.
	LagBytes map[ident.Node]int64
	LagTime  map[ident.Node]time.Duration
	// Partitions has a row for each partition led here.
	Partitions []metrics.Partition
}

// Replication examines all partitions here.
func (i *Inspector) Replication() Replication {
	all := i.o.Engine.Partitions()
	r := Replication{Hosted: len(all), LagBytes: map[ident.Node]int64{}, LagTime: map[ident.Node]time.Duration{}}
	for _, n := range i.o.Catalog.Nodes() {
		if n.Name != i.o.Self.Name {
			r.LagBytes[n.Name], r.LagTime[n.Name] = 0, 0
		}
	}
	i.o.Engine.Followers(slices.DeleteFunc(slices.Clone(all), caughtUp), followersWait)
	for _, p := range all {
		if p.Leading() && !p.Trashed() { // a new topic may have its name, and thereby its series
			r.add(i.o.Self.Name, p, i.o.Peers.Up)
		}
	}
	return r
}

// caughtUp reports whether a partition is not led here, or all its replicas have the whole log.
func caughtUp(p *engine.Partition) bool {
	v := p.View()
	return v.Role != replica.Leader || !v.UnderReplicated && v.End == v.Committed
}

func (r *Replication) add(self ident.Node, p *engine.Partition, up func(ident.Node) bool) {
	v := p.View()
	row := metrics.Partition{
		Topic: p.Topic(), Number: p.ID().Number, Leader: string(self), Epoch: uint64(v.Epoch),
		Replicas: len(v.Replicas), InSync: len(v.ISR), EndSequence: uint64(v.Committed.Sequence),
	}
	answer := 0
	for _, m := range v.ISR {
		if m.Node == self || up(m.Node) {
			answer++
		}
	}
	r.Led++
	r.PendingBytes += int64(v.PendingBytes)
	r.UnderReplicated += count(v.UnderReplicated)
	r.BelowMin += count(answer < v.MinInSync)
	r.SingleCopy += count(answer < 2 && len(v.Replicas) > 1)
	if !caughtUp(p) {
		for _, f := range p.Followers() {
			owes := time.Duration(f.OwesMS) * time.Millisecond
			r.LagBytes[f.Node] += f.Behind
			r.LagTime[f.Node] = max(r.LagTime[f.Node], owes)
			row.LagBytes, row.Lag = max(row.LagBytes, f.Behind), max(row.Lag, owes)
		}
	}
	r.Partitions = append(r.Partitions, row)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
