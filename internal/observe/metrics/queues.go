package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Other is the topic that sums up all topics beyond the limit.
const Other = "_other"

// Topic is the state of one topic at a scrape: the depth of its partitions that this broker leads, and the counts of all
// partitions that it has led.
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

var queueNames = []string{
	"topic_depth", "topic_messages_total", "topic_bytes_total", "channel_depth", "channel_in_flight", "channel_deferred", "channel_lag_seconds",
	"channel_clients", "channel_paused", "channel_requeued_total", "channel_timed_out_total", "channel_filtered_total", "channel_expired_total",
}

// Queues sets the source of the topics. Each scrape calls it on the scrape's goroutine; it may take milliseconds.
func (r *Recorder) Queues(source func() []Topic) {
	r.Source(queueNames, func(emit Emit) {
		for _, t := range r.queues.rows(source()) {
			emit("topic_depth", float64(t.Depth), t.Name)
			emit("topic_messages_total", float64(t.Messages), t.Name)
			emit("topic_bytes_total", float64(t.Bytes), t.Name)
			for _, c := range t.Channels {
				c.emit(emit, t.Name, c.Name)
			}
		}
	})
}

func (c *Channel) emit(emit Emit, labels ...string) {
	emit("channel_depth", float64(c.Depth), labels...)
	emit("channel_in_flight", float64(c.InFlight), labels...)
	emit("channel_deferred", float64(c.Deferred), labels...)
	emit("channel_lag_seconds", c.Lag.Seconds(), labels...)
	emit("channel_clients", float64(c.Clients), labels...)
	emit("channel_paused", one(c.Paused), labels...)
	emit("channel_requeued_total", float64(c.Requeued), labels...)
	emit("channel_timed_out_total", float64(c.TimedOut), labels...)
	if c.Filtered != 0 { // few channels have a filter
		emit("channel_filtered_total", float64(c.Filtered), labels...)
	}
	if c.Expired != 0 {
		emit("channel_expired_total", float64(c.Expired), labels...)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// queues limits the topics and channels with series of their own.
type queues struct {
	limit int
	mu    sync.Mutex // guards other
	other other
}

func (q *queues) rows(topics []Topic) []Topic {
	rows, rest := limited(topics, q.limit)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(rest) > 0 || q.other.last != nil {
		rows = append(rows, q.other.sum(rest))
	}
	return rows
}

// limited lists at most limit topics and channels by name, the first in the alphabet so that every scrape has the same ones, and
// the rest.
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

// counted are the counters of one topic: messages, bytes, and those of its channels summed up: requeued, timed out, filtered,
// expired.
type counted [6]uint64

// other sums up the topics beyond the limit. Their counters start when the topic is beyond the limit, so that the sum does not
// fall when a topic disappears, or gets series of its own.
type other struct {
	last  map[string]counted // of the previous scrape
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
		for i := range c {
			if c[i] < before[i] { // the counter started again
				before[i] = 0
			}
			o.total[i] += c[i] - before[i]
		}
	}
	o.last = now
	ch := &row.Channels[0]
	row.Messages, row.Bytes, ch.Requeued, ch.TimedOut, ch.Filtered, ch.Expired = o.total[0], o.total[1], o.total[2], o.total[3], o.total[4], o.total[5]
	return row
}

// add adds the gauges of a topic, and returns its counters.
func (t *Topic) add(o Topic) counted {
	t.Depth += o.Depth
	c := counted{o.Messages, o.Bytes}
	for _, ch := range o.Channels {
		s := &t.Channels[0]
		s.Depth += ch.Depth
		s.InFlight += ch.InFlight
		s.Deferred += ch.Deferred
		s.Clients += ch.Clients
		s.Lag = max(s.Lag, ch.Lag)
		s.Paused = s.Paused || ch.Paused
		for i, n := range [...]uint64{ch.Requeued, ch.TimedOut, ch.Filtered, ch.Expired} {
			c[2+i] += n
		}
	}
	return c
}
