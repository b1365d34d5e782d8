package speed

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// skipped is a channel whose filter matches nothing.
type skipped struct {
	topic, channel, filter string
	rates                  []float64
}

// TestFilterSkips measures how many messages a second a channel passes over whose filter matches none of them, from the
// RDY of its one consumer to a depth of 0 at the leader. Then a message that matches is delivered. LOCKSTEP_LONG makes it
// 10 rounds of 2,000,000 messages each.
func TestFilterSkips(t *testing.T) {
	c := e2etest.Start(t, 3)
	messages := e2etest.Rounds(20_000, 2_000_000)
	const equal, regexp = "header:kind=refund", "header:kind~=^re(fund|call)$"
	ways := []*skipped{
		{topic: "plain", channel: "equal", filter: equal},
		{topic: "headers", channel: "equal", filter: equal},
		{topic: "headers", channel: "regexp", filter: regexp},
	}
	for topic, header := range map[string]string{
		"plain":   "",
		"headers": `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","region":"eu-west-1","kind":"order"}`,
	} {
		c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "retention_time": {"1h"}})
		c.Whole(topic)
		for _, w := range ways {
			if w.topic == topic {
				c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {w.channel}})
				c.Post(c.Brokers[0], "/v1/channel/policy", url.Values{"topic": {topic}, "channel": {w.channel}, "filter": {w.filter}})
			}
		}
		for at := 0; at < messages; at += 5000 {
			putHeaded(c, c.Brokers[0], topic, strings.Repeat("message\n", 5000), header)
		}
	}
	count := e2etest.Rounds(1, 10)
	for round := range count {
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			w.rates = append(w.rates, skip(c, w))
		}
	}
	for _, w := range ways {
		slices.Sort(w.rates)
		t.Logf("%-8s %-28s median %.2f M messages/s, %.2f to %.2f", w.topic, w.filter, w.rates[count/2]/1e6, w.rates[0]/1e6, w.rates[count-1]/1e6)
		at := consumeRaw(c, w)
		putHeaded(c, c.Brokers[0], w.topic, "it matches\n", `{"kind":"refund"}`)
		frame := make([]byte, 8+8+2+16+len("it matches"))
		_, err := io.ReadFull(at, frame)
		require.NoError(t, err)
		require.Equal(t, "it matches", string(frame[8+8+2+16:]))
		_ = at.Close()
	}
}

// skip moves the channel back to the first message and takes the time in which it passes over those that are left: it
// passes over some without a consumer.
func skip(c *e2etest.Cluster, w *skipped) (perSecond float64) {
	c.T.Helper()
	leader, err := c.Broker(c.Leader(w.topic))
	require.NoError(c.T, err)
	c.Post(c.Brokers[0], "/v1/channel/seek", url.Values{"topic": {w.topic}, "channel": {w.channel}, "to": {"earliest"}})
	state := func() (s api.ChannelStats) {
		var all struct{ Topics []api.TopicStats }
		require.NoError(c.T, c.Get(*leader, "/stats?format=json&topic="+w.topic+"&channel="+w.channel, &all))
		return all.Topics[0].Channels[0]
	}
	before := state()
	began := time.Now()
	consumer := consumeRaw(c, w)
	c.Until("all messages passed over", func() bool { return state().Depth == 0 })
	took := time.Since(began)
	require.EqualValues(c.T, before.Depth, state().FilteredCount-before.FilteredCount)
	require.NoError(c.T, consumer.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = consumer.Read(make([]byte, 1))
	require.ErrorContains(c.T, err, "timeout", "a message is delivered")
	_ = consumer.Close()
	c.Until("the consumer gone", func() bool { return state().ClientCount == 0 }) // else it continues after the next seek
	return float64(before.Depth) / took.Seconds()
}

// consumeRaw subscribes at the leader with RDY 1.
func consumeRaw(c *e2etest.Cluster, w *skipped) net.Conn {
	c.T.Helper()
	leader, err := c.Broker(c.Leader(w.topic))
	require.NoError(c.T, err)
	conn, err := net.Dial("tcp", leader.TCP)
	require.NoError(c.T, err)
	require.NoError(c.T, conn.SetDeadline(time.Now().Add(e2etest.WaitLimit)))
	_, err = fmt.Fprintf(conn, "  V2SUB %s %s\nRDY 1\n", w.topic, w.channel)
	require.NoError(c.T, err)
	_, err = io.ReadFull(conn, make([]byte, 10)) // OK
	require.NoError(c.T, err)
	return conn
}

// putHeaded publishes lines, each as a message with this header ("": none).
func putHeaded(c *e2etest.Cluster, b devcluster.Broker, topic, lines, header string) {
	c.T.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+b.HTTP+"/mpub?topic="+topic, strings.NewReader(lines))
	require.NoError(c.T, err)
	if header != "" {
		r.Header.Set("X-Nsq-Headers", header)
	}
	resp, err := c.HTTP.Do(r)
	require.NoError(c.T, err)
	_ = resp.Body.Close()
	require.Equal(c.T, http.StatusOK, resp.StatusCode)
}
