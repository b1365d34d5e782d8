package metrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/api"
)

// other is the topic that sums up all topics beyond the limit.
const other = "_other"

var queueNames = []string{
	"topic_depth", "topic_messages_total", "topic_bytes_total", "channel_depth", "channel_in_flight", "channel_deferred", "channel_lag_seconds",
	"channel_clients", "channel_paused", "channel_requeued_total", "channel_timed_out_total", "channel_filtered_total", "channel_expired_total",
}

// Queues sets the source of the topics: the depths of the partitions that this broker leads, and the work that this
// process has done as a leader. Each scrape calls it on the scrape's goroutine; it may take milliseconds.
func (r *Recorder) Queues(source func() []api.TopicSample) {
	r.Source(queueNames, func(emit Emit) {
		for _, t := range r.queues.rows(source()) {
			emit("topic_depth", float64(t.Depth), t.Topic)
			emit("topic_messages_total", float64(t.Put), t.Topic)
			emit("topic_bytes_total", float64(t.PutBytes), t.Topic)
			for i := range t.Channels {
				emitChannel(emit, &t.Channels[i], t.Topic, t.Channels[i].Channel)
			}
		}
	})
}

func emitChannel(emit Emit, c *api.ChannelSample, labels ...string) {
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
	mu    sync.Mutex // guards rest
	rest  rest
}

func (q *queues) rows(topics []api.TopicSample) []api.TopicSample {
	rows, beyond := limited(topics, q.limit)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(beyond) > 0 || q.rest.last != nil {
		rows = append(rows, q.rest.sum(beyond))
	}
	return rows
}

// limited lists the topics that fit into limit topics and channels together. It tries them in alphabetical order, so
// that every scrape lists the same ones. It also returns the rest.
func limited(topics []api.TopicSample, limit int) (kept, beyond []api.TopicSample) {
	slices.SortFunc(topics, func(a, b api.TopicSample) int { return cmp.Compare(a.Topic, b.Topic) })
	for _, t := range topics {
		if n := 1 + len(t.Channels); n <= limit && t.Topic != other {
			limit -= n
			kept = append(kept, t)
			continue
		}
		beyond = append(beyond, t)
	}
	return kept, beyond
}

// counted are the counters of one topic: messages, bytes, and those of its channels summed up: requeued, timed out, filtered,
// expired.
type counted [6]uint64

// rest sums up the topics beyond the limit. A topic's counters are counted from when it went beyond the limit, so the
// sum does not fall when a topic disappears or gets its own series.
type rest struct {
	last  map[string]counted // of the previous scrape
	total counted
}

// sum is the row of the topics beyond the limit.
func (r *rest) sum(topics []api.TopicSample) api.TopicSample {
	now := make(map[string]counted, len(topics))
	row, sum := api.TopicSample{Topic: other}, api.ChannelSample{Channel: other}
	for _, t := range topics {
		row.Depth += t.Depth
		c := counted{t.Put, t.PutBytes}
		for _, ch := range t.Channels {
			sum.Depth += ch.Depth
			sum.InFlight += ch.InFlight
			sum.Deferred += ch.Deferred
			sum.Clients += ch.Clients
			sum.Lag = max(sum.Lag, ch.Lag)
			sum.Paused = sum.Paused || ch.Paused
			for i, n := range [...]uint64{ch.Requeued, ch.TimedOut, ch.Filtered, ch.Expired} {
				c[2+i] += n
			}
		}
		now[t.Topic] = c
		before := r.last[t.Topic]
		for i := range c {
			if c[i] < before[i] { // the counter started again
				before[i] = 0
			}
			r.total[i] += c[i] - before[i]
		}
	}
	r.last = now
	row.Put, row.PutBytes = r.total[0], r.total[1]
	sum.Requeued, sum.TimedOut, sum.Filtered, sum.Expired = r.total[2], r.total[3], r.total[4], r.total[5]
	row.Channels = []api.ChannelSample{sum}
	return row
}
