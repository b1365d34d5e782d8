package httpapi

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

var statsRoutes = []Route{
	get("/stats", access.Observe, (*endpoints).stats,
		"Depths, counts and clients of the queues that this broker leads. The sum over all brokers is the cluster.",
		textArg("format", "json; otherwise text"), textArg("topic", "only this topic"),
		textArg("channel", "only this channel"), boolArg("include_clients", "false: without clients and producers"),
		boolArg("include_mem", "false: without the figures of the memory")).replies(statsReply{}).lenient().local(),
}

// statsReply is GET /stats?format=json. Its keys are those of a stock nsqd, in the same order and with the same types;
// new keys follow them.
type statsReply struct {
	Version   string            `json:"version"`
	Health    string            `json:"health"`
	StartTime int64             `json:"start_time"`
	Topics    []api.TopicStats  `json:"topics"`
	Memory    *metrics.Memory   `json:"memory,omitempty"`
	Producers []api.ClientStats `json:"producers"`

	began time.Time // StartTime, for text
}

func (a *endpoints) stats(q *request) (any, error) {
	if q.err != nil {
		return nil, q.err
	}
	topic, channel, clients := q.topic(), q.channel(), q.flag("include_clients", true)
	reply := statsReply{
		Version: a.opts.Version, Health: a.health(), StartTime: a.opts.StartTime.Unix(), began: a.opts.StartTime,
		Topics: a.b.Stats.Topics(topic, channel, clients),
	}
	// This broker need not lead a partition of the topic.
	unknown := topic != "" && len(reply.Topics) == 0 && !slices.Contains(a.b.Directory.Topics(), topic)
	if channel != "" { // a topic without the channel is not requested
		reply.Topics = slices.DeleteFunc(reply.Topics, func(t api.TopicStats) bool { return len(t.Channels) == 0 })
	}
	reply.Topics = normal(reply.Topics, clients, unknown)
	if q.flag("include_mem", true) {
		m := metrics.ReadMemory()
		reply.Memory = &m
	}
	if clients {
		reply.Producers = []api.ClientStats{}
		if a.b.Producers != nil {
			reply.Producers = append(reply.Producers, a.b.Producers()...)
			countsOf(topic, reply.Producers)
		}
	}
	if q.text("format") == "json" {
		return reply, nil
	}
	return reply.text(), nil
}

func countsOf(topic string, producers []api.ClientStats) {
	for i, p := range producers {
		if topic != "" && len(p.PubCounts) > 0 && p.PubCounts[0].Topic != topic {
			producers[i].PubCounts = nil
		}
	}
}

// normal sets empty lists as NSQ's tools expect them: no topics are [], but null if the requested topic does not exist;
// clients that were not requested are null.
func normal(topics []api.TopicStats, clients, unknown bool) []api.TopicStats {
	if len(topics) == 0 && unknown {
		return nil
	}
	for i := range topics {
		topics[i].Channels = list(topics[i].Channels)
		for j := range topics[i].Channels {
			ch := &topics[i].Channels[j]
			if ch.Clients = list(ch.Clients); !clients {
				ch.Clients = nil
			}
		}
	}
	return list(topics)
}

// text returns the lines of a stock nsqd, for scripts that parse them. Texts that clients choose are escaped: a
// terminal shows them, and they must not look like a line from the broker.
func (s *statsReply) text() string {
	w := &strings.Builder{}
	fmt.Fprintf(w, "nsqd v%s (built w/%s)\n", s.Version, runtime.Version())
	fmt.Fprintf(w, "start_time %s\n", s.began.Format(time.RFC3339))
	fmt.Fprintf(w, "uptime %s\n", time.Since(s.began).Round(time.Second))
	fmt.Fprintf(w, "\nHealth: %s\n", s.Health)
	if s.Memory != nil {
		fmt.Fprint(w, "\nMemory:\n")
		for name, value := range s.Memory.Gauges() {
			fmt.Fprintf(w, "   %-25s\t%d\n", name, value)
		}
		fmt.Fprintf(w, "   %-25s\t%d\n", "gc_total_runs", s.Memory.GCTotalRuns)
	}
	topics, producers := "\nTopics:", "\nProducers:\n"
	if len(s.Topics) == 0 {
		topics = "\nTopics: None\n"
	}
	if len(s.Producers) == 0 {
		producers = "\nProducers: None\n"
	}
	fmt.Fprint(w, topics)
	for i := range s.Topics {
		writeTopic(w, &s.Topics[i])
	}
	fmt.Fprint(w, producers)
	for i := range s.Producers {
		writeProducer(w, &s.Producers[i])
	}
	return w.String()
}

func writeTopic(w io.Writer, t *api.TopicStats) {
	fmt.Fprintf(w, "\n%s[%-15s] depth: %-5d be-depth: %-5d msgs: %-8d e2e%%: %s\n",
		pauseMark(t.Paused), t.TopicName, t.Depth, t.BackendDepth, t.MessageCount, latency(t.E2E))
	for i := range t.Channels {
		ch := &t.Channels[i]
		fmt.Fprintf(w, "   %s[%-25s] depth: %-5d be-depth: %-5d inflt: %-4d def: %-4d re-q: %-5d timeout: %-5d msgs: %-8d e2e%%: %s\n",
			pauseMark(ch.Paused), ch.ChannelName, ch.Depth, ch.BackendDepth, ch.InFlightCount,
			ch.DeferredCount, ch.RequeueCount, ch.TimeoutCount, ch.MessageCount, latency(ch.E2E))
		if ch.Filter != "" {
			fmt.Fprintf(w, "        filter: %s rejected: %d\n", api.Printable(ch.Filter), ch.FilteredCount)
		}
		for j := range ch.Clients {
			c := &ch.Clients[j]
			fmt.Fprintf(w, "        [%s %-21s] state: %d inflt: %-4d rdy: %-4d fin: %-8d re-q: %-8d msgs: %-8d connected: %s\n",
				c.Version, clientName(c), c.State, c.InFlightCount, c.ReadyCount, c.FinishCount,
				c.RequeueCount, c.MessageCount, connected(c))
		}
	}
}

func writeProducer(w io.Writer, c *api.ClientStats) {
	var msgs uint64
	topics := make([]string, 0, len(c.PubCounts))
	for _, p := range c.PubCounts {
		msgs += p.Count
		topics = append(topics, fmt.Sprintf("%s=%d", p.Topic, p.Count))
	}
	fmt.Fprintf(w, "   [%s %-21s] msgs: %-8d topics: %s connected: %s\n", c.Version, clientName(c), msgs, strings.Join(topics, ","), connected(c))
}

// clientName distinguishes the connections of one host by their ports.
func clientName(c *api.ClientStats) string {
	_, port, _ := net.SplitHostPort(c.RemoteAddress) // a unix socket has none
	return fmt.Sprintf("%s:%s %s", api.Printable(c.Hostname), port, api.Printable(c.UserAgent))
}

func pauseMark(paused bool) string {
	if paused {
		return "*P "
	}
	return "   "
}

func latency(e api.E2ELatency) string {
	parts := make([]string, 0, len(e.Percentiles))
	for _, p := range e.Percentiles {
		parts = append(parts, nanoseconds(p.Value))
	}
	return strings.Join(parts, ", ")
}

func nanoseconds(v float64) string {
	switch {
	case v > 1e9:
		return fmt.Sprintf("%.1fs", v/1e9)
	case v > 1e6:
		return fmt.Sprintf("%.1fms", v/1e6)
	case v > 1e3:
		return fmt.Sprintf("%.1fus", v/1e3)
	}
	return fmt.Sprintf("%.1fns", v)
}

func connected(c *api.ClientStats) time.Duration {
	return time.Since(time.Unix(c.ConnectTime, 0)).Round(time.Second)
}
