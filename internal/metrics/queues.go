package metrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the topic that sums up all topics beyond the limit.
const Other = "_other"

// Topic is the state of one topic at a scrape: of its partitions that this broker leads.
type Topic struct {
	Name     string
	Depth    int64 // messages that the slowest channel has not finished; without a channel all messages
	Messages uint64
	Bytes    uint64
	Channels []Channel
}

// Channel is the state of one channel at a scrape.
type Channel struct {
	Name                      string
	Depth, InFlight, Deferred int64
	Requeued, TimedOut        uint64
	Clients                   int
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
	mu       struct {
		sync.Mutex
		source func() []Topic
	}
}

// column is one metric of a row.
type column[Row any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Row) float64
}

func newQueues(limit int) *queues {
	byTopic, byChannel := []string{"topic"}, []string{"topic", "channel"}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	return &queues{limit: limit,
		topics: []column[Topic]{
			{desc("topic_depth", "Messages that the slowest channel of the topic has not finished.", byTopic), gauge, func(t Topic) float64 { return float64(t.Depth) }},
			{desc("topic_messages_total", "Messages put to the topic.", byTopic), counter, func(t Topic) float64 { return float64(t.Messages) }},
			{desc("topic_bytes_total", "Bytes put to the topic.", byTopic), counter, func(t Topic) float64 { return float64(t.Bytes) }},
		},
		channels: []column[Channel]{
			{desc("channel_depth", "Messages that the channel has not delivered.", byChannel), gauge, func(c Channel) float64 { return float64(c.Depth) }},
			{desc("channel_in_flight", "Messages in flight to consumers.", byChannel), gauge, func(c Channel) float64 { return float64(c.InFlight) }},
			{desc("channel_deferred", "Messages that are deferred.", byChannel), gauge, func(c Channel) float64 { return float64(c.Deferred) }},
			{desc("channel_clients", "Connected consumers.", byChannel), gauge, func(c Channel) float64 { return float64(c.Clients) }},
			{desc("channel_requeued_total", "Messages requeued by consumers.", byChannel), counter, func(c Channel) float64 { return float64(c.Requeued) }},
			{desc("channel_timed_out_total", "Messages whose message timeout expired.", byChannel), counter, func(c Channel) float64 { return float64(c.TimedOut) }},
		},
	}
}

func desc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
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
	source := q.mu.source
	q.mu.Unlock()
	if source == nil {
		return
	}
	for _, t := range limited(source(), q.limit) {
		for _, c := range q.topics {
			out <- prometheus.MustNewConstMetric(c.desc, c.kind, c.value(t), t.Name)
		}
		for _, ch := range t.Channels {
			for _, c := range q.channels {
				out <- prometheus.MustNewConstMetric(c.desc, c.kind, c.value(ch), t.Name, ch.Name)
			}
		}
	}
}

// limited keeps at most limit topics and channels by name and sums up the rest. It keeps the
// first ones in the alphabet, so that every scrape has the same ones.
func limited(topics []Topic, limit int) []Topic {
	slices.SortFunc(topics, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	var kept []Topic
	other := Topic{Name: Other, Channels: []Channel{{Name: Other}}}
	summed := false
	for _, t := range topics {
		if n := 1 + len(t.Channels); n <= limit && t.Name != Other {
			limit -= n
			kept = append(kept, t)
			continue
		}
		summed = true
		other.add(t)
	}
	if summed {
		kept = append(kept, other)
	}
	return kept
}

func (t *Topic) add(o Topic) {
	t.Depth += o.Depth
	t.Messages += o.Messages
	t.Bytes += o.Bytes
	for _, c := range o.Channels {
		s := &t.Channels[0]
		s.Depth += c.Depth
		s.InFlight += c.InFlight
		s.Deferred += c.Deferred
		s.Requeued += c.Requeued
		s.TimedOut += c.TimedOut
		s.Clients += c.Clients
	}
}
