package httpapi

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Text is GET /stats as text. Its lines are those of a stock nsqd, for scripts that parse
// them. Texts that clients choose are escaped: a terminal shows them, and no line of theirs may pass for
// one of the broker.
func (s *Reply) Text() string {
	w := &strings.Builder{}
	fmt.Fprintf(w, "nsqd v%s (built w/%s)\n", s.Version, runtime.Version())
	fmt.Fprintf(w, "start_time %s\n", s.Began.Format(time.RFC3339))
	fmt.Fprintf(w, "uptime %s\n", time.Since(s.Began).Round(time.Second))
	fmt.Fprintf(w, "\nHealth: %s\n", s.Health)
	if s.Memory != nil {
		writeMemory(w, s.Memory)
	}
	if len(s.Topics) == 0 {
		fmt.Fprint(w, "\nTopics: None\n")
	} else {
		fmt.Fprint(w, "\nTopics:")
	}
	for i := range s.Topics {
		writeTopic(w, &s.Topics[i])
	}
	if len(s.Producers) == 0 {
		fmt.Fprint(w, "\nProducers: None\n")
	} else {
		fmt.Fprint(w, "\nProducers:\n")
	}
	for i := range s.Producers {
		writeProducer(w, &s.Producers[i])
	}
	return w.String()
}

func writeMemory(w io.Writer, m *Memory) {
	fmt.Fprint(w, "\nMemory:\n")
	row := func(name string, value uint64) { fmt.Fprintf(w, "   %-25s\t%d\n", name, value) }
	m.Each(row)
	row("gc_total_runs", uint64(m.GCTotalRuns))
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

// nanoseconds formats a duration in a suitable unit.
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
