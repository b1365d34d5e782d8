package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// TestListsAreThoseOfNSQ: [] and null stand where NSQ's tools expect them.
func TestListsAreThoseOfNSQ(t *testing.T) {
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "[]", text(normal(nil, true, false)))
	require.Equal(t, "null", text(normal(nil, true, true)), "the requested topic does not exist")
	topics := func() []api.TopicStats {
		return []api.TopicStats{{TopicName: "t"}, {Channels: []api.ChannelStats{{}}}}
	}
	with := normal(topics(), true, false)
	require.Equal(t, "[]", text(with[0].Channels))
	require.Equal(t, "[]", text(with[1].Channels[0].Clients))
	require.Equal(t, "null", text(normal(topics(), false, false)[1].Channels[0].Clients), "they were not requested")
}

// TestCountsOfOtherTopicsAreLeftOut: if the request names one.
func TestCountsOfOtherTopicsAreLeftOut(t *testing.T) {
	producers := func() []api.ClientStats {
		return []api.ClientStats{{PubCounts: []api.PubCount{{Topic: "a", Count: 1}}}, {PubCounts: []api.PubCount{{Topic: "b", Count: 1}}}}
	}
	p := producers()
	countsOf("a", p)
	require.NotNil(t, p[0].PubCounts)
	require.Nil(t, p[1].PubCounts)
	p = producers()
	countsOf("", p)
	require.NotNil(t, p[1].PubCounts)
}

// TestTextOfAnEmptyBroker: the lines that scripts look for.
func TestTextOfAnEmptyBroker(t *testing.T) {
	s := statsReply{Version: "1.3.0", Health: "OK", began: time.Now()}
	for _, line := range []string{"nsqd v1.3.0 (built w/go", "\nHealth: OK\n", "\nTopics: None\n", "\nProducers: None\n", "uptime 0s\n"} {
		require.Contains(t, s.text(), line)
	}
	require.NotContains(t, s.text(), "Memory")
	m := metrics.ReadMemory()
	s.Memory = &m
	require.Contains(t, s.text(), "heap_in_use_bytes")
}

// TestTextsOfClientsAreEscaped: a client neither writes lines of its own, nor reaches the terminal.
func TestTextsOfClientsAreEscaped(t *testing.T) {
	client := api.ClientStats{Version: "V2", Hostname: "h\x1b[2J\nTopics: fake", UserAgent: "ua\u009b31m", RemoteAddress: "192.0.2.1:9"}
	s := statsReply{began: time.Now(), Producers: []api.ClientStats{client}, Topics: []api.TopicStats{{
		TopicName: "t", Channels: []api.ChannelStats{{ChannelName: "c", Filter: "tag=\x1b]0;x\a", Clients: []api.ClientStats{client}}},
	}}}
	text := s.text()
	require.Equal(t, 2, strings.Count(text, `[V2 h\x1b[2J\nTopics: fake:9 ua\u009b31m]`))
	require.Contains(t, text, `filter: tag=\x1b]0;x\a rejected`)
	require.NotContains(t, text, "\x1b")
}

func TestDurationsHaveASuitableUnit(t *testing.T) {
	for v, want := range map[float64]string{1: "1.0ns", 1500: "1.5us", 2.5e6: "2.5ms", 3e9: "3.0s"} {
		require.Equal(t, want, nanoseconds(v))
	}
}
