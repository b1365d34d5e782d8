package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// publish publishes a body to a topic; false if it is not answered OK.
func (c *cluster) publish(topic, body string) bool {
	resp, err := passing.Post("http://"+c.Brokers[0].HTTP+"/pub?topic="+topic, "", strings.NewReader(body))
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// publishMany publishes numbered bodies in one put.
func (c *cluster) publishMany(topic, prefix string, n int) {
	c.t.Helper()
	resp, err := passing.Post("http://"+c.Brokers[0].HTTP+"/mpub?topic="+topic, "", strings.NewReader(strings.Join(numbered(prefix, n), "\n")))
	require.NoError(c.t, err)
	_ = resp.Body.Close()
	require.Equal(c.t, http.StatusOK, resp.StatusCode)
}

// startMirror starts a mirror of topics between two clusters.
func startMirror(t *testing.T, east, west *cluster, topics string, flags ...string) *mirrored {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &mirrored{t: t, east: east, west: west, metrics: l.Addr().String(), client: passing}
	_ = l.Close()
	args := append([]string{"mirror", "run", topics, "--from-http-address=" + east.Brokers[0].HTTP,
		"--nsqd-http-address=" + west.Brokers[0].HTTP, "--state=" + filepath.Join(t.TempDir(), "state"), "--metrics-address=" + m.metrics}, flags...)
	m.process = exec.CommandContext(t.Context(), built.path("nsqctl"), args...)
	m.process.Stdout, m.process.Stderr = &m.out, &m.out
	require.NoError(t, m.process.Start())
	return m
}

// TestMirrorGoesOnBesideATopic: a message that the target refuses holds up its own partition, and says so; partitions
// that a mirrored topic gets at the source, an ordered one too, it gets at the target; and a mirror that is to end
// when nothing is left refuses a pattern without a topic.
func TestMirrorGoesOnBesideATopic(t *testing.T) {
	processes(t)
	east, west := start(t, 1), start(t, 1, "--max-msg-size=1000")
	m := startMirror(t, east, west, "nosuch*", "--poll=100ms", "--until-caught-up")
	require.Error(t, m.process.Wait())
	require.Contains(t, m.out.String(), "the source has no topic that matches nosuch*")

	for _, topic := range []string{"large", "growing"} {
		east.post(east.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "ordered": {"true"}})
	}
	require.True(t, east.publish("large", strings.Repeat("x", 1001)))
	require.True(t, east.publish("growing", "first"))
	m = startMirror(t, east, west, "*", "--poll=300ms")
	within(t, waitLimit, "the first copy", func() bool { return west.committed("growing") == 1 && m.has("topic=\"large\"") })
	east.must("topic", "partitions", "growing", "4", "--reorder")
	for i := range 40 {
		require.True(t, east.publish(fmt.Sprintf("growing&key=%d", i), "later"))
	}
	within(t, waitLimit, "the copies of all partitions", func() bool { return west.committed("growing") == 41 })
	v, _ := west.topic("growing")
	require.Len(t, v.Partitions, 4)
	require.NoError(t, m.end(syscall.SIGTERM), m.out.String())
	require.Contains(t, m.out.String(), "MSG_TOO_BIG")
	require.Contains(t, m.out.String(), "other partitions go on")

	stream := filepath.Join(t.TempDir(), "growing.lsx")
	east.must("export", "growing", "--file", stream)
	west.must("topic", "create", "plain", "--partitions", "4")
	out, err := west.nsqctl("import", stream, "--topic", "plain")
	require.NoError(t, err, out)
	require.Contains(t, out, "topic growing was ordered and plain is not")
}

// TestMirrorOfDeletedTopics: a mirror of two topics goes on when one of them is deleted and created again between
// two of its looks, at the source with more messages than before or at the target under load, and when one is
// deleted at the source for good. Every message is there once, and the other topic is not held up.
func TestMirrorOfDeletedTopics(t *testing.T) {
	processes(t)
	east, west := start(t, 1), start(t, 1)
	for _, topic := range []string{"orders", "other"} {
		east.post(east.Brokers[0], "/topic/create", url.Values{"topic": {topic}})
	}
	east.publishMany("orders", "first", 200)
	m := startMirror(t, east, west, "o*", "--poll=2s")
	has := func(topic string, n int) func() bool {
		return func() bool { return west.committed(topic) >= uint64(n) }
	}
	within(t, waitLimit, "the first copies", has("orders", 200))

	east.post(east.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
	east.post(east.Brokers[0], "/topic/create", url.Values{"topic": {"orders"}})
	east.publishMany("orders", "second", 300)
	within(t, waitLimit, "the copies of the second topic", has("orders", 500))
	pause(2500 * time.Millisecond) // another look
	bodies := map[string]int{}
	for _, x := range west.peekAll("orders") {
		bodies[x.Body]++
	}
	require.Len(t, bodies, 500)
	for body, n := range bodies {
		require.Equal(t, 1, n, body)
	}

	// The target's topic is deleted while messages come.
	for i := range 200 {
		if i == 50 {
			west.post(west.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
		}
		require.True(t, east.publish("orders", fmt.Sprintf("third-%06d", i)))
	}
	require.True(t, east.publish("other", "still there"))
	within(t, waitLimit, "the other topic", has("other", 1))
	within(t, waitLimit, "the topic, which is created again", has("orders", 500))
	require.Len(t, west.peekAll("orders"), 500)
	for i, x := range west.peekAll("orders") {
		require.True(t, strings.HasSuffix(x.origin(), fmt.Sprintf(":0:%d", i)), "in order: %s", x.origin())
	}

	// Another topic of the name takes no copies of the one before.
	west.post(west.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
	west.post(west.Brokers[0], "/topic/create", url.Values{"topic": {"orders"}})
	require.True(t, east.publish("orders", "fourth"))
	within(t, waitLimit, "all messages, from the first", has("orders", 501))
	require.Len(t, west.peekAll("orders"), 501)

	// Deleted at the source: no lag is left.
	east.post(east.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
	within(t, waitLimit, "the end of the copies", func() bool { return !m.has(`lockstep_mirror_lag_seconds{partition="0",topic="orders"}`) })
	require.True(t, m.has(`lockstep_mirror_lag_seconds{partition="0",topic="other"}`))
	require.NoError(t, m.end(syscall.SIGTERM), m.out.String())
	copied := 0
	last := m.out.String()[strings.LastIndex(strings.TrimSpace(m.out.String()), "\n")+1:]
	_, err := fmt.Sscanf(last, "%d messages copied in", &copied)
	require.NoError(t, err, last)
	require.GreaterOrEqual(t, copied, 500+500+501+1, "those of topics that are gone count")
}

// has reports whether the metrics of the mirror have a series.
func (m *mirrored) has(series string) bool { return strings.Contains(m.text(), series) }
