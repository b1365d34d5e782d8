package mirror

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

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// publish publishes a body to a topic; false if it is not answered OK.
func publish(c *e2etest.Cluster, topic, body string) bool {
	resp, err := e2etest.Passing.Post("http://"+c.Brokers[0].HTTP+"/pub?topic="+topic, "", strings.NewReader(body))
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// publishMany publishes numbered bodies in one put.
func publishMany(c *e2etest.Cluster, topic, prefix string, n int) {
	c.T.Helper()
	resp, err := e2etest.Passing.Post("http://"+c.Brokers[0].HTTP+"/mpub?topic="+topic, "", strings.NewReader(strings.Join(e2etest.Numbered(prefix, n), "\n")))
	require.NoError(c.T, err)
	_ = resp.Body.Close()
	require.Equal(c.T, http.StatusOK, resp.StatusCode)
}

// startMirror starts a mirror of topics between two clusters.
func startMirror(t *testing.T, east, west *e2etest.Cluster, topics string, flags ...string) *mirrored {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &mirrored{t: t, east: east, west: west, metrics: l.Addr().String(), client: e2etest.Passing}
	_ = l.Close()
	args := append([]string{"mirror", "run", topics, "--from-http-address=" + east.Brokers[0].HTTP,
		"--nsqd-http-address=" + west.Brokers[0].HTTP, "--state=" + filepath.Join(t.TempDir(), "state"), "--metrics-address=" + m.metrics}, flags...)
	m.process = exec.CommandContext(t.Context(), e2etest.Built.Path("nsqctl"), args...)
	m.process.Stdout, m.process.Stderr = &m.out, &m.out
	require.NoError(t, m.process.Start())
	return m
}

// TestMirrorGoesOnBesideATopic: a message that the target refuses holds up its own partition, and says so; partitions
// that a mirrored topic gets at the source, an ordered one too, it gets at the target; and a mirror that is to end
// when nothing is left refuses a pattern without a topic.
func TestMirrorGoesOnBesideATopic(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	east, west := e2etest.Start(t, 1), e2etest.Start(t, 1, "--max-msg-size=1000")
	m := startMirror(t, east, west, "nosuch*", "--poll=100ms", "--until-caught-up")
	require.Error(t, m.process.Wait())
	require.Contains(t, m.out.String(), "the source has no topic that matches nosuch*")

	for _, topic := range []string{"large", "growing"} {
		east.Post(east.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "ordered": {"true"}})
	}
	require.True(t, publish(east, "large", strings.Repeat("x", 1001)))
	require.True(t, publish(east, "growing", "first"))
	m = startMirror(t, east, west, "*", "--poll=300ms")
	e2etest.Within(t, e2etest.WaitLimit, "the first copy", func() bool { return west.Committed("growing") == 1 && m.has("topic=\"large\"") })
	east.Must("topic", "partitions", "growing", "4", "--reorder")
	for i := range 40 {
		require.True(t, publish(east, fmt.Sprintf("growing&key=%d", i), "later"))
	}
	e2etest.Within(t, e2etest.WaitLimit, "the copies of all partitions", func() bool { return west.Committed("growing") == 41 })
	v, _ := west.Topic("growing")
	require.Len(t, v.Partitions, 4)
	require.NoError(t, m.end(syscall.SIGTERM), m.out.String())
	require.Contains(t, m.out.String(), "MSG_TOO_BIG")
	require.Contains(t, m.out.String(), "other partitions continue")

	stream := filepath.Join(t.TempDir(), "growing.lsx")
	east.Must("export", "growing", "--file", stream)
	west.Must("topic", "create", "plain", "--partitions", "4")
	out, err := west.Nsqctl("import", stream, "--topic", "plain")
	require.NoError(t, err, out)
	require.Contains(t, out, "topic growing was ordered and plain is not")
}

// TestMirrorOfDeletedTopics: a mirror of two topics continues when one of them is deleted and created again between
// two of its looks, at the source with more messages than before or at the target under load, and when one is
// deleted at the source permanently. Every message is there once, and the other topic is not held up.
func TestMirrorOfDeletedTopics(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	east, west := e2etest.Start(t, 1), e2etest.Start(t, 1)
	for _, topic := range []string{"orders", "other"} {
		east.Post(east.Brokers[0], "/topic/create", url.Values{"topic": {topic}})
	}
	publishMany(east, "orders", "first", 200)
	m := startMirror(t, east, west, "o*", "--poll=2s")
	has := func(topic string, n int) func() bool {
		return func() bool { return west.Committed(topic) >= uint64(n) }
	}
	e2etest.Within(t, e2etest.WaitLimit, "the first copies", has("orders", 200))

	east.Post(east.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
	east.Post(east.Brokers[0], "/topic/create", url.Values{"topic": {"orders"}})
	publishMany(east, "orders", "second", 300)
	e2etest.Within(t, e2etest.WaitLimit, "the copies of the second topic", has("orders", 500))
	e2etest.Pause(2500 * time.Millisecond) // another look
	bodies := map[string]int{}
	for _, x := range west.PeekAll("orders") {
		bodies[x.Body]++
	}
	require.Len(t, bodies, 500)
	for body, n := range bodies {
		require.Equal(t, 1, n, body)
	}

	// The target's topic is deleted while messages come.
	for i := range 200 {
		if i == 50 {
			west.Post(west.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
		}
		require.True(t, publish(east, "orders", fmt.Sprintf("third-%06d", i)))
	}
	require.True(t, publish(east, "other", "still there"))
	e2etest.Within(t, e2etest.WaitLimit, "the other topic", has("other", 1))
	e2etest.Within(t, e2etest.WaitLimit, "the topic, which is created again", has("orders", 500))
	require.Len(t, west.PeekAll("orders"), 500)
	for i, x := range west.PeekAll("orders") {
		require.True(t, strings.HasSuffix(x.Origin(), fmt.Sprintf(":0:%d", i)), "in order: %s", x.Origin())
	}

	// Another topic of the name takes no copies of the one before.
	west.Post(west.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
	west.Post(west.Brokers[0], "/topic/create", url.Values{"topic": {"orders"}})
	require.True(t, publish(east, "orders", "fourth"))
	e2etest.Within(t, e2etest.WaitLimit, "all messages, from the first", has("orders", 501))
	require.Len(t, west.PeekAll("orders"), 501)

	// Deleted at the source: no lag is left.
	east.Post(east.Brokers[0], "/topic/delete", url.Values{"topic": {"orders"}})
	e2etest.Within(t, e2etest.WaitLimit, "the end of the copies", func() bool { return !m.has(`lockstep_mirror_lag_seconds{partition="0",topic="orders"}`) })
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
