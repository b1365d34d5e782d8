package topics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// place is a channel's position and counts.
type place struct {
	Depth    int64
	Deferred int
	Position string
}

// placeOf waits until nothing is in flight, and gives the place of a channel.
func placeOf(c *e2etest.Cluster, topic, channel string) (p place) {
	c.T.Helper()
	c.Until("nothing in flight", func() bool {
		s := c.ChannelStats(topic, channel)
		p.Depth, p.Deferred = s.Depth, s.DeferredCount
		return s.InFlightCount == 0
	})
	var v struct {
		Positions []api.ChannelPosition `json:"positions"`
	}
	require.NoError(c.T, c.Get(c.Brokers[0], "/v1/topic/positions?topic="+topic, &v))
	for _, x := range v.Positions {
		if x.Consumers = 0; x.Channel == channel { // sessions of polls end later
			p.Position += fmt.Sprintf("%+v\n", x)
		}
	}
	return p
}

// same compares two places, which are too long to be printed.
func same(t *testing.T, want, got place) {
	t.Helper()
	for i := range min(len(want.Position), len(got.Position)) {
		if want.Position[i] != got.Position[i] {
			require.Fail(t, "the channel is elsewhere", "%s\n%s", want.Position[max(0, i-100):min(len(want.Position), i+100)], got.Position[max(0, i-100):min(len(got.Position), i+100)])
		}
	}
	require.True(t, want == got, "depth %d and %d, deferred %d and %d", want.Depth, got.Depth, want.Deferred, got.Deferred)
}

// lines publishes messages with ?args=, a thousand in a put.
func lines(c *e2etest.Cluster, topic, args string, bodies []string) {
	c.T.Helper()
	for begin := 0; begin < len(bodies); begin += 1000 {
		body := strings.Join(bodies[begin:min(begin+1000, len(bodies))], "\n")
		resp, err := c.HTTP.Post("http://"+c.Brokers[begin/1000%3].HTTP+"/mpub?topic="+topic+args, "", strings.NewReader(body))
		require.NoError(c.T, err)
		require.NoError(c.T, resp.Body.Close())
		require.Equal(c.T, http.StatusOK, resp.StatusCode)
	}
}

// finish polls and finishes n messages of a channel. None is left in flight.
func finish(c *e2etest.Cluster, topic, channel string, n int) map[string]int {
	c.T.Helper()
	got := map[string]int{}
	for count := 0; count < n; {
		list, err := c.Poll(c.Brokers[0], topic, channel, min(100, n-count), 5*time.Second)
		require.NoError(c.T, err)
		require.NotEmpty(c.T, list)
		status, finished := c.Settle(c.Brokers[0], topic, channel, list)
		require.Equal(c.T, http.StatusOK, status)
		require.Equal(c.T, len(list), finished)
		for _, m := range list {
			got[string(m.Body)]++
		}
		count += len(list)
	}
	return got
}

// folders are the folders of a topic's partitions on all brokers, those in the trash of the data path
// included.
func folders(c *e2etest.Cluster, topic string) (all []string) {
	for _, b := range c.Brokers {
		for _, pattern := range []string{"topics/" + topic + ".*/*", "trash/" + topic + ".*"} {
			found, err := filepath.Glob(filepath.Join(c.Dir, string(b.Name), pattern))
			require.NoError(c.T, err)
			all = append(all, found...)
		}
	}
	return all
}

// TestUndelete: a topic with 10,000 messages, of which 4,000 are finished, and 500 delayed ones is
// deleted. All brokers are killed. After the undelete every count and position is the same, and
// the rest is delivered once. Then a broker is away during a deletion and an undelete.
func TestUndelete(t *testing.T) {
	t.Parallel()
	const messages, finished, delayed = 10_000, 4_000, 500
	c := e2etest.Start(t, 3)
	c.Create("orders", "billing", 3)
	c.Post(c.Brokers[1], "/channel/create", url.Values{"topic": {"orders"}, "channel": {"audit"}})
	c.Post(c.Brokers[1], "/channel/pause", url.Values{"topic": {"orders"}, "channel": {"audit"}})
	bodies := e2etest.Numbered("m", messages)
	var all []string
	for _, b := range bodies {
		all = append(all, string(b))
	}
	lines(c, "orders", "", all)
	lines(c, "orders", "&defer=3600000", all[:delayed])
	got := finish(c, "orders", "billing", finished)
	require.Len(t, got, finished)
	billing, audit := placeOf(c, "orders", "billing"), placeOf(c, "orders", "audit")
	require.EqualValues(t, messages-finished, billing.Depth+int64(billing.Deferred-delayed))
	require.EqualValues(t, messages, audit.Depth)

	c.Must("topic", "delete", "orders")
	_, err := c.Nsqctl("topic", "describe", "orders")
	require.Error(t, err)
	var trash []api.TrashedTopic
	c.Until("a trash in which no leader is missing", func() bool {
		out, err := c.Nsqctl("topic", "trash", "-o", "json")
		require.NoError(t, err, out)
		require.NoError(t, json.Unmarshal([]byte(out), &trash))
		require.Len(t, trash, 1)
		return !trash[0].Incomplete
	})
	require.EqualValues(t, messages+delayed, trash[0].Messages)
	require.Positive(t, trash[0].Bytes)

	c.CrashAll()
	require.NoError(t, c.StartAll())
	c.WaitReady()
	c.Back()
	c.Create("orders", "billing", 1) // another topic of the name
	out, err := c.Nsqctl("topic", "undelete", "orders")
	require.Error(t, err)
	require.Contains(t, out, trash[0].ID.String())
	c.Must("topic", "delete", "orders", "--now")
	c.Must("topic", "undelete", "orders")
	settled := func() { // a leader that moves would be counted twice, or by nobody; messages may come twice
		c.Whole("orders")
		c.Until("leaders where they stay", func() bool { return c.Preferred("orders") })
	}
	settled()
	same(t, billing, placeOf(c, "orders", "billing"))
	same(t, audit, placeOf(c, "orders", "audit"))

	require.NoError(t, c.Kill("n3"))
	c.Must("topic", "delete", "orders")
	c.Must("topic", "undelete", "orders")
	c.Restart("n3")
	settled()
	same(t, billing, placeOf(c, "orders", "billing"))

	rest := finish(c, "orders", "billing", messages-finished)
	for body := range rest {
		require.NotContains(t, got, body, "it was finished before the deletion")
	}
	require.Len(t, rest, messages-finished)
	require.Equal(t, delayed, placeOf(c, "orders", "billing").Deferred)
}

// TestDeletedTopicGoesAfterItsGrace: not before, and with all its files.
func TestDeletedTopicGoesAfterItsGrace(t *testing.T) {
	t.Parallel()
	const grace = 4 * time.Second
	c := e2etest.Start(t, 3, "--delete-grace="+grace.String(), "--trash-grace=1s")
	c.Create("orders", "billing", 2)
	lines(c, "orders", "", []string{"m0", "m1"})
	began := time.Now()
	c.Must("topic", "delete", "orders")
	require.Len(t, folders(c, "orders"), 6)
	listed := func(want int) func() bool { // at another broker, which hears of the deletion a moment later
		return func() bool {
			var v struct {
				Topics []api.TrashedTopic `json:"topics"`
			}
			return c.Get(c.Brokers[1], "/v1/topic/trash", &v) == nil && len(v.Topics) == want
		}
	}
	c.Until("the topic to come into the trash", listed(1))
	c.Until("the topic to leave the trash", listed(0))
	require.GreaterOrEqual(t, time.Since(began), grace)
	c.Until("its files to go", func() bool { return len(folders(c, "orders")) == 0 })
	out, err := c.Nsqctl("topic", "undelete", "orders")
	require.Error(t, err)
	require.Contains(t, out, "TOPIC_NOT_FOUND")
}
