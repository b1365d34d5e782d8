package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the topic that sums up all topics beyond the limit.
const Other = "_other"

// Topic is the state of one topic at a scrape: the depth of its partitions that this broker leads,
// and the counts of all partitions that it has led.
type Topic struct {
	Name     string
	Depth    int64  // messages that no channel has received
	Messages uint64 // committed by this process
	Bytes    uint64 // of their bodies
	Channels []Channel
}

// Channel is the state of one channel at a scrape.
type Channel struct {
	Name                      string
	Depth, InFlight, Deferred int64
	Requeued, TimedOut        uint64 // by this process
	Filtered                  uint64 // by this process: messages that are not for the channel
	Expired                   uint64 // by this process: messages that outlived their time to live
	Clients                   int
	Lag                       time.Duration // age of the oldest message that is neither finished nor deferred
	Paused                    bool
}

// Queues sets the source of the topics. Each scrape calls it on the scrape's goroutine; it may
// take milliseconds.
func (r *Recorder) Queues(source func() []Topic) {
	if r == nil {
		return
	}
	r.queues.mu.Lock()
	defer r.queues.mu.Unlock()
	r.queues.mu.source = source
}

// queues is the collector for topics and channels.
type queues struct {
	limit    int
	topics   []column[Topic]
	channels []column[Channel]
	other    other
	mu       struct {
		sync.Mutex
		source func() []Topic
	}
}

// column is one metric of a row.
type column[Row any] struct {
	described
	value  func(Row) float64
	sparse bool // no series while the value is 0
}

func newQueues(limit int) *queues {
	q := &queues{limit: limit}
	q.topics = []column[Topic]{
		columnOf("topic_depth", func(t Topic) float64 { return float64(t.Depth) }),
		columnOf("topic_messages_total", func(t Topic) float64 { return float64(t.Messages) }),
		columnOf("topic_bytes_total", func(t Topic) float64 { return float64(t.Bytes) }),
	}
	q.channels = []column[Channel]{
		columnOf("channel_depth", func(c Channel) float64 { return float64(c.Depth) }),
		columnOf("channel_in_flight", func(c Channel) float64 { return float64(c.InFlight) }),
		columnOf("channel_deferred", func(c Channel) float64 { return float64(c.Deferred) }),
		columnOf("channel_lag_seconds", func(c Channel) float64 { return c.Lag.Seconds() }),
		columnOf("channel_clients", func(c Channel) float64 { return float64(c.Clients) }),
		columnOf("channel_paused", func(c Channel) float64 { return one(c.Paused) }),
		columnOf("channel_requeued_total", func(c Channel) float64 { return float64(c.Requeued) }),
		columnOf("channel_timed_out_total", func(c Channel) float64 { return float64(c.TimedOut) }),
		sparse(columnOf("channel_filtered_total", func(c Channel) float64 { return float64(c.Filtered) })), // few channels have a filter
		sparse(columnOf("channel_expired_total", func(c Channel) float64 { return float64(c.Expired) })),
	}
	return q
}

func columnOf[Row any](name string, value func(Row) float64) column[Row] {
	d := definitions[name]
	return column[Row]{described: described{define(name, d.Kind).desc(), d.valueType()}, value: value}
}

// sparse leaves out the series while the value is 0.
func sparse[Row any](c column[Row]) column[Row] {
	c.sparse = true
	return c
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (q *queues) Describe(out chan<- *prometheus.Desc) {
	for _, c := range q.topics {
		out <- c.desc
	}
	for _, c := range q.channels {
		out <- c.desc
	}
}

// Collect implements prometheus.Collector.
func (q *queues) Collect(out chan<- prometheus.Metric) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.source == nil {
		return
	}
	rows, rest := limited(q.mu.source(), q.limit)
	if len(rest) > 0 || q.other.last != nil {
		rows = append(rows, q.other.sum(rest))
	}
	for _, t := range rows {
		for _, c := range q.topics {
			out <- prometheus.MustNewConstMetric(c.desc, c.kind, c.value(t), t.Name)
		}
		for _, ch := range t.Channels {
			for _, c := range q.channels {
				if v := c.value(ch); v != 0 || !c.sparse {
					out <- prometheus.MustNewConstMetric(c.desc, c.kind, v, t.Name, ch.Name)
				}
			}
		}
	}
}

// limited keeps at most limit topics and channels by name and sums up the rest. It keeps the
// first ones in the alphabet, so that every scrape has the same ones.
func limited(topics []Topic, limit int) (kept []Topic, rest []Topic) {
	slices.SortFunc(topics, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range topics {
		if n := 1 + len(t.Channels); n <= limit && t.Name != Other {
			limit -= n
			kept = append(kept, t)
			continue
		}
		rest = append(rest, t)
	}
	return kept, rest
}

// counted are the counters of one topic, its channels' summed up.
type counted struct{ messages, bytes, requeued, timedOut, filtered, expired uint64 }

// other sums up the topics beyond the limit. Their counters are those since the topic is beyond the
// limit, so that the sum does not fall when a topic goes, or gets series of its own.
type other struct {
	last  map[string]counted // of the scrape before
	total counted
}

// sum is the row of the topics beyond the limit.
func (o *other) sum(topics []Topic) Topic {
	row := Topic{Name: Other, Channels: []Channel{{Name: Other}}}
	now := make(map[string]counted, len(topics))
	for _, t := range topics {
		c := row.add(t)
		now[t.Name] = c
		before := o.last[t.Name]
		o.total.messages += rise(before.messages, c.messages)
		o.total.bytes += rise(before.bytes, c.bytes)
		o.total.requeued += rise(before.requeued, c.requeued)
		o.total.timedOut += rise(before.timedOut, c.timedOut)
		o.total.filtered += rise(before.filtered, c.filtered)
		o.total.expired += rise(before.expired, c.expired)
	}
	o.last = now
	row.Messages, row.Bytes = o.total.messages, o.total.bytes
	row.Channels[0].Requeued, row.Channels[0].TimedOut = o.total.requeued, o.total.timedOut
	row.Channels[0].Filtered, row.Channels[0].Expired = o.total.filtered, o.total.expired
	return row
}

// rise is how much a counter has grown. A counter that fell started again.
func rise(from, to uint64) uint64 {
	if to < from {
		return to
	}
	return to - from
}

// add adds the gauges of a topic, and returns its counters.
func (t *Topic) add(o Topic) counted {
	t.Depth += o.Depth
	c := counted{messages: o.Messages, bytes: o.Bytes}
	for _, ch := range o.Channels {
		s := &t.Channels[0]
		s.Depth += ch.Depth
		s.InFlight += ch.InFlight
		s.Deferred += ch.Deferred
		s.Clients += ch.Clients
		s.Lag = max(s.Lag, ch.Lag)
		s.Paused = s.Paused || ch.Paused
		c.requeued += ch.Requeued
		c.timedOut += ch.TimedOut
		c.filtered += ch.Filtered
		c.expired += ch.Expired
	}
	return c
}
