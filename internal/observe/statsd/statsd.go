// Package statsd sends a broker's statistics to a statsd daemon over UDP, with the names and units of stock nsqd.
//
// It keeps only the counters of its last push, in order to send differences.
//
// # Invariants
//
//  1. A counter's first push is its total; later ones are its increase. If a counter falls (the topic was created
//     again, or another broker led it in between) the next push is its total again. Message counts begin when this
//     broker becomes the leader: the earlier messages were pushed by another broker or an earlier run.
//  2. No packet is longer than the limit, unless a single line is.
package statsd

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// Pusher sends statistics until its context ends.
type Pusher struct {
	o      config.Statsd
	log    logrus.FieldLogger
	stats  api.Stats
	memory func() metrics.Memory
	prefix string
	last   map[string]uint64
	since  map[string]uint64 // last values of counts that continue when the broker leads a topic again; entries stay
}

// New makes a pusher. host is broadcast_address:http_port, which replaces %s in the prefix. memory measures the heap.
func New(o config.Statsd, host string, s api.Stats, memory func() metrics.Memory, log logrus.FieldLogger) *Pusher {
	host = strings.NewReplacer(".", "_", ":", "_").Replace(host)
	prefix := strings.ReplaceAll(o.StatsdPrefix, "%s", host)
	if prefix != "" && !strings.HasSuffix(prefix, ".") {
		prefix += "."
	}
	return &Pusher{o: o, log: log, stats: s, memory: memory, prefix: prefix, last: map[string]uint64{}, since: map[string]uint64{}}
}

// Run pushes every interval until ctx ends.
func (p *Pusher) Run(ctx context.Context) {
	concurrency.Every(ctx, p.o.StatsdInterval, func() {
		if err := p.push(ctx); err != nil && ctx.Err() == nil {
			p.log.WithError(err).Warn("cannot push to statsd")
		}
	})
}

// push sends all lines once, with the packets spread over the interval minus its last second, so that a burst does not
// overrun the receiver.
func (p *Pusher) push(ctx context.Context) error {
	conn, err := net.Dial("udp", p.o.StatsdAddress)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return p.send(ctx, conn, pack(p.lines(), p.o.StatsdUDPPacketSize))
}

// send continues after a packet that the daemon refused, because the daemon may be back for the next one. If ctx ends, it sends
// the remaining packets without a pause.
func (p *Pusher) send(ctx context.Context, w io.Writer, packets [][]byte) error {
	gap := max(0, p.o.StatsdInterval-time.Second) / time.Duration(max(1, len(packets)))
	var failed error
	for i, packet := range packets {
		if i > 0 {
			concurrency.Sleep(ctx, gap)
		}
		if _, err := w.Write(packet); err != nil {
			failed = err
		}
	}
	return failed
}

func pack(lines []string, size int) (packets [][]byte) {
	for _, line := range lines {
		if n := len(packets) - 1; n >= 0 && len(packets[n])+1+len(line) <= size {
			packets[n] = append(append(packets[n], '\n'), line...)
			continue
		}
		packets = append(packets, []byte(line))
	}
	return packets
}

func (p *Pusher) lines() []string {
	l := &lines{prefix: p.prefix, last: p.last, next: map[string]uint64{}, since: p.since}
	for _, t := range p.stats.Topics("", "", false) {
		if !p.excluded(t.TopicName) {
			p.topic(l, &t)
		}
	}
	if p.o.StatsdMemStats {
		m := p.memory()
		for name, value := range m.Gauges() {
			l.gauge("mem."+name, value)
		}
		l.counter("mem.gc_runs", uint64(m.GCTotalRuns))
	}
	p.last = l.next
	return l.out
}

func (p *Pusher) excluded(name string) bool {
	return p.o.StatsdExcludeEphemeral && strings.HasSuffix(name, "#ephemeral")
}

func (p *Pusher) topic(l *lines, t *api.TopicStats) {
	key := "topic." + t.TopicName + "."
	l.counter(key+"message_count", own(t.MessageCount, t.Inherited))
	l.lifetime(key+"message_bytes", t.MessageBytes)
	l.gauge(key+"depth", uint64(t.Depth))
	l.gauge(key+"backend_depth", uint64(t.BackendDepth))
	l.latencies(key, t.E2E)
	for i := range t.Channels {
		if c := &t.Channels[i]; !p.excluded(c.ChannelName) {
			channel(l, key+"channel."+c.ChannelName+".", c)
		}
	}
}

func channel(l *lines, key string, c *api.ChannelStats) {
	l.counter(key+"message_count", own(c.MessageCount, c.Inherited))
	l.gauge(key+"depth", uint64(c.Depth))
	l.gauge(key+"backend_depth", uint64(c.BackendDepth))
	l.gauge(key+"in_flight_count", uint64(c.InFlightCount))
	l.gauge(key+"deferred_count", uint64(c.DeferredCount))
	l.lifetime(key+"requeue_count", c.RequeueCount)
	l.lifetime(key+"timeout_count", c.TimeoutCount)
	l.gauge(key+"clients", uint64(c.ClientCount))
	l.latencies(key, c.E2E)
}

// own is how much a count has grown under this broker. After a channel was moved back, its count is lower than the
// inherited one.
func own(count, inherited uint64) uint64 { return max(count, inherited) - inherited }

type lines struct {
	prefix     string
	last, next map[string]uint64
	since      map[string]uint64 // last values of the counts that a process keeps; entries stay
	out        []string
}

func (l *lines) gauge(name string, v uint64) {
	l.out = append(l.out, fmt.Sprintf("%s%s:%d|g", l.prefix, name, v))
}

func (l *lines) counter(name string, total uint64) {
	l.next[name] = total
	added := total
	if before := l.last[name]; before <= total {
		added = total - before
	}
	l.out = append(l.out, fmt.Sprintf("%s%s:%d|c", l.prefix, name, added))
}

// lifetime is a counter of the process: it continues from its last value when the broker leads a topic again.
func (l *lines) lifetime(name string, total uint64) {
	if before, ok := l.since[name]; ok {
		l.last[name] = before
	}
	l.counter(name, total)
	l.since[name] = total
}

// latencies adds gauges in nanoseconds, named by the percentile: 0.99 is e2e_processing_latency_99.
func (l *lines) latencies(key string, e api.E2ELatency) {
	for _, p := range e.Percentiles {
		l.gauge(fmt.Sprintf("%se2e_processing_latency_%.0f", key, p.Quantile*100), uint64(p.Value))
	}
}
