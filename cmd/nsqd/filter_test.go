package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
)

// TestStockConsumersOfFilteredChannels: unmodified consumers share a channel with a filter and a
// channel without one. Each message that matches comes to exactly one consumer of the first, every
// message to the second, and bodies have no header in them.
func TestStockConsumersOfFilteredChannels(t *testing.T) {
	t.Parallel()
	b := plain.use(t)
	b.eventually("filters", func() bool {
		status, _ := b.post("/topic/create?topic=filtered", "")
		require.Equal(t, 200, status)
		status, _ = b.post("/channel/create?topic=filtered&channel=europe&filter=header:region%5E%3Deu-", "")
		return status == 200
	})
	status, text := b.post("/channel/create?topic=filtered&channel=all", "")
	require.Equal(t, 200, status, text)

	var mu sync.Mutex
	got := map[string]map[string]int{}
	for i, channel := range []string{"europe", "europe", "all"} {
		c, err := nsq.NewConsumer("filtered", channel, nsq.NewConfig())
		require.NoError(t, err)
		c.SetLogger(clusters.Silent(), nsq.LogLevelError)
		c.ChangeMaxInFlight(10)
		c.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if got[channel] == nil {
				got[channel] = map[string]int{}
			}
			got[channel][string(m.Body)]++
			return nil
		}))
		require.NoError(t, c.ConnectToNSQD(b.address(0)), i)
		defer func() { c.Stop(); <-c.StopChan }()
	}
	p, err := nsq.NewProducer(b.address(0), nsq.NewConfig())
	require.NoError(t, err)
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	defer p.Stop()
	want := map[string]map[string]int{"europe": {}, "all": {}}
	for i := range 60 {
		body := fmt.Sprintf("%02d", i)
		want["all"][body] = 1
		if i%4 == 3 { // a stock producer: no headers
			require.NoError(t, p.Publish("filtered", []byte(body)))
			continue
		}
		region := []string{"eu-west", "us-east", "eu-north"}[i%4]
		if region[0] == 'e' {
			want["europe"][body] = 1
		}
		status, text := b.with("", "POST", "/pub?topic=filtered", body, "X-Nsq-Headers", fmt.Sprintf(`{"region":%q}`, region))
		require.Equal(t, 200, status, text)
	}
	b.eventually("every message has come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got["europe"]) == len(want["europe"]) && len(got["all"]) == len(want["all"])
	})
	b.eventually("the channel is empty", func() bool {
		_, stats := b.get("/stats?format=json&topic=filtered&channel=europe")
		return strings.Contains(stats, `"depth":0,"backend_depth":0,"in_flight_count":0`) && strings.Contains(stats, `"filter":"header:region^=eu-","filtered_count":30`)
	})
	require.EqualValues(t, 30, b.metric(`lockstep_channel_filtered_total{channel="europe",topic="filtered"}`))
	_, peeked := b.get("/v1/topic/peek?topic=filtered&limit=1")
	require.Contains(t, peeked, `"header":{"region":"eu-west"}`)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, want, got)
}
