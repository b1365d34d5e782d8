package query

import (
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

// TopicMetrics are the topics for a scrape (metrics.Recorder.Queues): the depths of the partitions led here, and the work of
// this process as a leader, also of partitions that it no longer leads.
func (i *Inspector) TopicMetrics() []api.TopicSample {
	byName := samples{}
	now := time.Now()
	for _, p := range i.o.Engine.Partitions() {
		if p.Trashed() {
			continue
		}
		done := p.Queue().Work()
		if p.Leading() {
			s, stats := byName.of(p.Topic()), p.Queue().Stats("", false)
			s.Depth += stats.Depth
			for _, c := range stats.Channels {
				add(s.channel(c.ChannelName), c, i.lag(p, c, now))
			}
		} else if done.Messages == 0 && len(done.Channels) == 0 {
			continue // a follower that never led has no series
		}
		byName.of(p.Topic()).worked(done)
	}
	there := func(topic string) bool { _, ok := i.o.Catalog.Topic(topic); return ok }
	for topic, done := range i.o.Engine.PastWork(there) {
		byName.of(topic).worked(done)
	}
	return byName.list()
}

func (s *sample) worked(done nsqd.Work) {
	s.Put += done.Messages
	s.PutBytes += done.Bytes
	for name, w := range done.Channels {
		c := s.channel(name)
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
		if p.Leading() && !p.Trashed() { // a new topic may have the same name, and therefore the same series
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
