package e2e

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

	"github.com/lockstepmq/lockstep/internal/edge"
)

// place is a channel's position and counts.
type place struct {
	Depth    int64
	Deferred int
	Position string
}

// place waits until nothing is in flight, and gives the place of a channel.
func (c *cluster) place(topic, channel string) (p place) {
	c.t.Helper()
	c.until("nothing in flight", func() bool {
		s := c.channelStats(topic, channel)
		p.Depth, p.Deferred = s.Depth, s.DeferredCount
		return s.InFlightCount == 0
	})
	var v struct {
		Positions []edge.ChannelPosition `json:"positions"`
	}
	require.NoError(c.t, c.get(c.Brokers[0], "/v1/topic/positions?topic="+topic, &v))
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
func (c *cluster) lines(topic, args string, bodies []string) {
	c.t.Helper()
	for begin := 0; begin < len(bodies); begin += 1000 {
		body := strings.Join(bodies[begin:min(begin+1000, len(bodies))], "\n")
		resp, err := c.http.Post("http://"+c.Brokers[begin/1000%3].HTTP+"/mpub?topic="+topic+args, "", strings.NewReader(body))
		require.NoError(c.t, err)
		require.NoError(c.t, resp.Body.Close())
		require.Equal(c.t, http.StatusOK, resp.StatusCode)
	}
}

// finish polls and finishes n messages of a channel. None is left in flight.
func (c *cluster) finish(topic, channel string, n int) map[string]int {
	c.t.Helper()
	got := map[string]int{}
	for count := 0; count < n; {
		list, err := c.poll(c.Brokers[0], topic, channel, min(100, n-count), 5*time.Second)
		require.NoError(c.t, err)
		require.NotEmpty(c.t, list)
		status, finished := c.settle(c.Brokers[0], topic, channel, list)
		require.Equal(c.t, http.StatusOK, status)
		require.Equal(c.t, len(list), finished)
		for _, m := range list {
			got[string(m.Body)]++
		}
		count += len(list)
	}
	return got
}

// folders are the folders of a topic's partitions on all brokers, those in the trash of the data path
// included.
func (c *cluster) folders(topic string) (all []string) {
	for _, b := range c.Brokers {
		for _, pattern := range []string{"topics/" + topic + ".*/*", "trash/" + topic + ".*"} {
			found, err := filepath.Glob(filepath.Join(c.dir, string(b.Name), pattern))
			require.NoError(c.t, err)
			all = append(all, found...)
		}
	}
	return all
}

// TestUndelete: a topic with 10,000 messages, of which 4,000 are finished, and 500 delayed ones is
// deleted. All brokers are killed. After the undelete every count and position is the same, and
// the rest is delivered once. Then a broker is away during a deletion and an undelete.
func TestUndelete(t *testing.T) {
	const messages, finished, delayed = 10_000, 4_000, 500
	c := start(t, 3)
	c.create("orders", "billing", 3)
	c.post(c.Brokers[1], "/channel/create", url.Values{"topic": {"orders"}, "channel": {"audit"}})
	c.post(c.Brokers[1], "/channel/pause", url.Values{"topic": {"orders"}, "channel": {"audit"}})
	bodies := numbered("m", messages)
	var all []string
	for _, b := range bodies {
		all = append(all, string(b))
	}
	c.lines("orders", "", all)
	c.lines("orders", "&defer=3600000", all[:delayed])
	got := c.finish("orders", "billing", finished)
	require.Len(t, got, finished)
	billing, audit := c.place("orders", "billing"), c.place("orders", "audit")
	require.EqualValues(t, messages-finished, billing.Depth+int64(billing.Deferred-delayed))
	require.EqualValues(t, messages, audit.Depth)

	c.must("topic", "delete", "orders")
	_, err := c.nsqctl("topic", "describe", "orders")
	require.Error(t, err)
	out, err := c.nsqctl("topic", "trash", "-o", "json")
	require.NoError(t, err, out)
	var trash []edge.TrashedTopic
	require.NoError(t, json.Unmarshal([]byte(out), &trash))
	require.Len(t, trash, 1)
	require.EqualValues(t, messages+delayed, trash[0].Messages)
	require.Positive(t, trash[0].Bytes)

	c.killAll()
	require.NoError(t, c.StartAll())
	c.ready()
	c.back()
	c.create("orders", "billing", 1) // another topic of the name
	out, err = c.nsqctl("topic", "undelete", "orders")
	require.Error(t, err)
	require.Contains(t, out, trash[0].ID.String())
	c.must("topic", "delete", "orders", "--now")
	c.must("topic", "undelete", "orders")
	c.whole("orders")
	same(t, billing, c.place("orders", "billing"))
	same(t, audit, c.place("orders", "audit"))

	require.NoError(t, c.Kill("n3"))
	c.must("topic", "delete", "orders")
	c.must("topic", "undelete", "orders")
	c.restart("n3")
	c.whole("orders")
	same(t, billing, c.place("orders", "billing"))

	c.until("leaders where they stay", func() bool { return c.preferred("orders") }) // else messages may come twice
	rest := c.finish("orders", "billing", messages-finished)
	for body := range rest {
		require.NotContains(t, got, body, "it was finished before the deletion")
	}
	require.Len(t, rest, messages-finished)
	require.Equal(t, delayed, c.place("orders", "billing").Deferred)
}

// TestDeletedTopicGoesAfterItsGrace: not before, and with all its files.
func TestDeletedTopicGoesAfterItsGrace(t *testing.T) {
	const grace = 4 * time.Second
	c := start(t, 3, "--delete-grace="+grace.String(), "--trash-grace=1s")
	c.create("orders", "billing", 2)
	c.lines("orders", "", []string{"m0", "m1"})
	began := time.Now()
	c.must("topic", "delete", "orders")
	require.Len(t, c.folders("orders"), 6)
	c.until("the topic to leave the trash", func() bool {
		var v struct {
			Topics []edge.TrashedTopic `json:"topics"`
		}
		return c.get(c.Brokers[1], "/v1/topic/trash", &v) == nil && len(v.Topics) == 0
	})
	require.GreaterOrEqual(t, time.Since(began), grace)
	c.until("its files to go", func() bool { return len(c.folders("orders")) == 0 })
	out, err := c.nsqctl("topic", "undelete", "orders")
	require.Error(t, err)
	require.Contains(t, out, "TOPIC_NOT_FOUND")
}
