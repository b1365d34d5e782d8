package statsd

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed is a broker with constant statistics.
type fixed []api.TopicStats

func (f fixed) Topics(string, string, bool) []api.TopicStats { return f }
func (f fixed) Health() error                                { return nil }

func example() fixed {
	return fixed{
		{TopicName: "t", MessageCount: 5, MessageBytes: 50, Depth: 2, BackendDepth: 1,
			E2E: api.E2ELatency{Count: 1, Percentiles: []api.Percentile{{Quantile: 0.99, Value: 7}}},
			Channels: []api.ChannelStats{
				{ChannelName: "c", MessageCount: 5, Depth: 1, InFlightCount: 2, DeferredCount: 3, RequeueCount: 4, TimeoutCount: 6, ClientCount: 8},
				{ChannelName: "e#ephemeral"},
			}},
		{TopicName: "u#ephemeral"},
	}
}

func pusher(stats api.Stats) *Pusher {
	return New(config.Statsd{StatsdPrefix: "nsq.%s", StatsdMemStats: true, StatsdExcludeEphemeral: true}, "127.0.0.1:4151", stats,
		func() metrics.Memory { return metrics.Memory{HeapObjects: 9, NextGCBytes: 4, GCTotalRuns: 3} }, nil)
}

func TestLines(t *testing.T) {
	require.Equal(t, []string{
		"nsq.127_0_0_1_4151.topic.t.message_count:5|c",
		"nsq.127_0_0_1_4151.topic.t.message_bytes:50|c",
		"nsq.127_0_0_1_4151.topic.t.depth:2|g",
		"nsq.127_0_0_1_4151.topic.t.backend_depth:1|g",
		"nsq.127_0_0_1_4151.topic.t.e2e_processing_latency_99:7|g",
		"nsq.127_0_0_1_4151.topic.t.channel.c.message_count:5|c",
		"nsq.127_0_0_1_4151.topic.t.channel.c.depth:1|g",
		"nsq.127_0_0_1_4151.topic.t.channel.c.backend_depth:0|g",
		"nsq.127_0_0_1_4151.topic.t.channel.c.in_flight_count:2|g",
		"nsq.127_0_0_1_4151.topic.t.channel.c.deferred_count:3|g",
		"nsq.127_0_0_1_4151.topic.t.channel.c.requeue_count:4|c",
		"nsq.127_0_0_1_4151.topic.t.channel.c.timeout_count:6|c",
		"nsq.127_0_0_1_4151.topic.t.channel.c.clients:8|g",
		"nsq.127_0_0_1_4151.mem.heap_objects:9|g",
		"nsq.127_0_0_1_4151.mem.heap_idle_bytes:0|g",
		"nsq.127_0_0_1_4151.mem.heap_in_use_bytes:0|g",
		"nsq.127_0_0_1_4151.mem.heap_released_bytes:0|g",
		"nsq.127_0_0_1_4151.mem.gc_pause_usec_100:0|g",
		"nsq.127_0_0_1_4151.mem.gc_pause_usec_99:0|g",
		"nsq.127_0_0_1_4151.mem.gc_pause_usec_95:0|g",
		"nsq.127_0_0_1_4151.mem.next_gc_bytes:4|g",
		"nsq.127_0_0_1_4151.mem.gc_runs:3|c",
	}, pusher(example()).lines())
}

func TestCountersAreDifferences(t *testing.T) {
	stats := example()
	p := pusher(stats)
	for _, step := range []struct {
		total uint64
		want  string
	}{{5, "5|c"}, {12, "7|c"}, {12, "0|c"}, {3, "3|c"}} {
		stats[0].MessageCount = step.total
		require.True(t, strings.HasSuffix(p.lines()[0], "message_count:"+step.want), "total %d", step.total)
	}
}

func TestPack(t *testing.T) {
	packets := pack([]string{"aaaa", "bbbb", "cccc", "a line longer than a packet", "d"}, 9)
	var got []string
	for _, p := range packets {
		got = append(got, string(p))
	}
	require.Equal(t, []string{"aaaa\nbbbb", "cccc", "a line longer than a packet", "d"}, got)
}

func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "nsq": "nsq.", "nsq.%s.": "nsq.h_1.", "%s.nsq.%s": "h_1.nsq.h_1."} {
		require.Equal(t, want, New(config.Statsd{StatsdPrefix: prefix}, "h:1", example(), nil, nil).prefix, prefix)
	}
}

// refusing is a daemon that refuses one packet.
type refusing struct{ got []string }

func (r *refusing) Write(b []byte) (int, error) {
	r.got = append(r.got, string(b))
	if len(r.got) == 2 {
		return 0, syscall.ECONNREFUSED
	}
	return len(b), nil
}

func TestOneRefusedPacketIsAllThatIsLost(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	daemon := &refusing{}
	p := New(config.Statsd{StatsdInterval: time.Hour}, "", example(), nil, nil)
	require.ErrorIs(t, p.send(ended, daemon, [][]byte{[]byte("a"), []byte("b"), []byte("c")}), syscall.ECONNREFUSED)
	require.Equal(t, []string{"a", "b", "c"}, daemon.got)
}

func TestRunPushes(t *testing.T) {
	receiver, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = receiver.Close() }()
	log := logrus.New()
	log.SetOutput(io.Discard)
	p := New(config.Statsd{StatsdAddress: receiver.LocalAddr().String(), StatsdInterval: time.Millisecond, StatsdUDPPacketSize: 508}, "", example(), nil, log)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	require.NoError(t, receiver.SetReadDeadline(time.Now().Add(wait.Limit)))
	b := make([]byte, 2048)
	n, _, err := receiver.ReadFrom(b)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(b[:n]), "topic.t.message_count:5|c\ntopic.t.message_bytes"))
	cancel()
	wg.Wait()
}

// TestMessagesOfOthersAreNotPushed: after a failover or a restart a push has only the messages
// that this broker added; the other brokers have pushed the rest.
func TestMessagesOfOthersAreNotPushed(t *testing.T) {
	stats := example()
	stats[0].MessageCount, stats[0].Inherited = 1_000_005, 1_000_000
	stats[0].Channels[0].MessageCount, stats[0].Channels[0].Inherited = 10, 1_000_000 // moved back
	p := pusher(stats)
	lines := strings.Join(p.lines(), "\n")
	require.Contains(t, lines, "topic.t.message_count:5|c")
	require.Contains(t, lines, "channel.c.message_count:0|c")
	stats[0].MessageCount = 1_000_007
	require.Contains(t, strings.Join(p.lines(), "\n"), "topic.t.message_count:2|c")
}

// TestCountsGoOnAfterAnotherLeader: the counts that a process keeps are pushed once, although the
// broker reports nothing of the topic while another one leads.
func TestCountsGoOnAfterAnotherLeader(t *testing.T) {
	stats := example()
	stats[0].MessageBytes, stats[0].Channels[0].RequeueCount = 100, 7
	p := pusher(stats)
	require.Contains(t, strings.Join(p.lines(), "\n"), "topic.t.message_bytes:100|c")
	led := p.stats
	p.stats = fixed(nil)
	require.NotContains(t, strings.Join(p.lines(), "\n"), "topic.t")
	p.stats = led
	stats[0].MessageBytes, stats[0].Channels[0].RequeueCount = 130, 9
	lines := strings.Join(p.lines(), "\n")
	require.Contains(t, lines, "topic.t.message_bytes:30|c")
	require.Contains(t, lines, "channel.c.requeue_count:2|c")
}
