package mirror

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

const mirrorBatch = 40

// mirrored is a source with a producer, a target, and the links between a mirror and both.
type mirrored struct {
	t              *testing.T
	east, west     *e2etest.Cluster
	toEast, toWest []*link
	g              *e2etest.Guide
	process        *exec.Cmd
	out            strings.Builder
	metrics        string
	client         *http.Client // for the metrics
	published      atomic.Int64 // answered OK: the bodies 0 to published-1
	stop           chan struct{}
	stopped        chan struct{}
}

func newMirrored(t *testing.T) *mirrored {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	metrics := l.Addr().String()
	_ = l.Close()
	return mirroredOver(t, metrics, func(_ string, to string) *link { return newLink(t, to) })
}

// mirroredOver is a mirror whose links to both sides, east and west, are made by link.
func mirroredOver(t *testing.T, metrics string, link func(side, to string) *link) *mirrored {
	t.Helper()
	m := &mirrored{t: t, east: e2etest.Start(t, 3), west: e2etest.Start(t, 3), metrics: metrics, client: e2etest.Passing, stop: make(chan struct{}), stopped: make(chan struct{})}
	here := []string{"127.0.0.1:9130", m.metrics}
	for i := range 3 {
		m.toEast = append(m.toEast, link("east", m.east.Brokers[i].HTTP))
		m.toWest = append(m.toWest, link("west", m.west.Brokers[i].HTTP))
		here = append(here, fmt.Sprintf("east%d.example:4151", i+1), m.toEast[i].address(), fmt.Sprintf("west%d.example:4151", i+1), m.toWest[i].address())
	}
	m.g = e2etest.OpenGuide(t, "mirror.md", here...)
	return m
}

// begin starts the mirror.
func (m *mirrored) begin() {
	m.t.Helper()
	m.process = m.g.Command("run", "--batch="+strconv.Itoa(mirrorBatch), "--poll=300ms")
	m.process.Stdout, m.process.Stderr = &m.out, os.Stderr
	if !testing.Verbose() {
		m.process.Stderr = io.Discard
	}
	require.NoError(m.t, m.process.Start())
}

// end ends the mirror.
func (m *mirrored) end(s syscall.Signal) error {
	_ = m.process.Process.Signal(s)
	return m.process.Wait()
}

// produce publishes numbered messages at the source until it is told to stop. Each is repeated until it is
// answered OK.
func (m *mirrored) produce() {
	defer close(m.stopped)
	for n := int64(0); ; n++ {
		for try := 0; ; try++ {
			select {
			case <-m.stop:
				return
			default:
			}
			b := m.east.Brokers[try%3]
			resp, err := e2etest.Passing.Post(fmt.Sprintf("http://%s/pub?topic=orders&key=%d", b.HTTP, n%7), "", strings.NewReader(fmt.Sprintf("m%06d", n)))
			if err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					break
				}
			}
		}
		m.published.Store(n + 1)
		e2etest.Pause(2 * time.Millisecond)
	}
}

// text is the mirror's metrics, "" if it does not answer.
func (m *mirrored) text() string {
	resp, err := m.client.Get("http://" + m.metrics + "/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

// sum sums a metric of the mirror; false if it does not answer.
func (m *mirrored) sum(metric string) (total float64, ok bool) {
	for _, line := range strings.Split(m.text(), "\n") {
		name, value, found := strings.Cut(line, " ")
		if found && strings.HasPrefix(name, metric+"{") {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(m.t, err)
			total, ok = total+n, true
		}
	}
	return total, ok
}

// follows waits until the mirror has copied all that is published by now.
func (m *mirrored) follows(what string) {
	m.t.Helper()
	least := m.published.Load() + 20
	began := time.Now()
	e2etest.Within(m.t, e2etest.WaitLimit, "copies "+what, func() bool {
		return m.published.Load() > least && m.west.HasTopic("orders") && len(m.distinct()) >= int(least)
	})
	m.t.Logf("%s: the mirror has caught up with %d messages after %s", what, least, time.Since(began).Round(time.Millisecond))
}

// distinct are the bodies at the target.
func (m *mirrored) distinct() map[string]int {
	counts := map[string]int{}
	out, _, err := m.west.Ctl("peek", "orders", "-n=1000000", "-o=json")
	if err != nil {
		return counts // a leader is missing
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var x e2etest.Logged
		if d.Decode(&x) != nil {
			return counts
		}
		counts[x.Body]++
	}
}

func cut(links []*link, is bool) {
	for _, k := range links {
		k.set(is)
	}
}

// leaderOf is the broker that leads partition 0 of the topic orders.
func leaderOf0(c *e2etest.Cluster) string {
	c.T.Helper()
	var v struct {
		Topics []struct {
			Topic      string
			Partitions []struct{ Leader string }
		}
	}
	leader := ""
	e2etest.Within(c.T, e2etest.WaitLimit, "a leader", func() bool {
		for _, b := range c.Brokers {
			if c.Get(b, "/v1/cluster", &v) != nil {
				continue
			}
			for _, x := range v.Topics {
				if x.Topic == "orders" {
					leader = x.Partitions[0].Leader
				}
			}
			return leader != ""
		}
		return false
	})
	return leader
}

// TestMirrorThroughCutsAndKills mirrors a topic while both links are cut, the leaders of both sides are killed, and
// the mirror is killed and loses its state file. Every message arrives once, in the order of its partition. A
// channel continues at the target where it was at the source.
func TestMirrorThroughCutsAndKills(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.east.Create("orders", "billing", 2)
	go m.produce()
	m.begin()
	m.follows("at first")

	faults := 0
	for _, links := range [][]*link{m.toEast, m.toWest} {
		cut(links, true)
		before := m.published.Load()
		e2etest.Within(t, e2etest.WaitLimit, "messages that are left", func() bool {
			lag, ok := m.sum("lockstep_mirror_lag_seconds")
			return m.published.Load() > before+200 && ok && lag > 0
		})
		cut(links, false)
		faults++
		m.follows("after a cut")
	}
	for _, c := range []*e2etest.Cluster{m.east, m.west} {
		leader := leaderOf0(c)
		c.Crash(leader)
		e2etest.Pause(time.Second)
		c.Restart(leader)
		faults++
		m.follows("after the kill of a leader")
	}
	require.Error(t, m.end(syscall.SIGKILL))
	faults++
	require.NoError(t, os.Remove(filepath.Join(m.g.Dir, "mirror.json")))
	m.begin()
	m.follows("after a kill of the mirror, without its state")

	finished := m.consumed()
	close(m.stop)
	<-m.stopped
	require.NoError(t, m.end(syscall.SIGTERM), "a stop is no error")
	require.Contains(t, m.out.String(), "messages copied in")
	m.judge(faults, finished, 0)
	m.stateIsNotShared()
}

// consumed lets a consumer of the source finish some messages.
func (m *mirrored) consumed() []string {
	m.t.Helper()
	finished := m.east.ConsumeFrom("orders", "billing", 300, 300, func(string) time.Duration { return 0 })
	require.Len(m.t, finished, 300)
	return finished
}

// judge copies what is left, and compares both sides.
func (m *mirrored) judge(faults int, finished []string, most int) {
	t := m.t
	t.Helper()
	out, problems := m.g.Must("finish", "--poll=300ms")
	require.Contains(t, out, "nothing is left", problems)
	out, _ = m.g.Must("status", "-o=json")
	var lags []struct{ Next, Lag uint64 }
	require.NoError(t, json.Unmarshal([]byte(out), &lags))
	require.Len(t, lags, 2)
	m.verdict(faults, finished, most)
}

// verdict compares both logs, and what the channel has left. At most so many messages are there twice.
func (m *mirrored) verdict(faults int, finished []string, most int) {
	t := m.t
	t.Helper()
	var source, target [2][]string
	for _, x := range m.east.PeekAll("orders") {
		source[x.Partition] = append(source[x.Partition], x.Body)
	}
	twice := 0
	for _, x := range m.west.PeekAll("orders") {
		want := fmt.Sprintf(":%d:%d", x.Partition, len(target[x.Partition]))
		if strings.HasSuffix(x.Origin(), want) {
			target[x.Partition] = append(target[x.Partition], x.Body)
			continue
		}
		at, err := strconv.Atoi(x.Origin()[strings.LastIndexByte(x.Origin(), ':')+1:])
		require.NoError(t, err)
		require.Less(t, at, len(target[x.Partition]), "a gap before %s", x.Origin())
		twice++
	}
	require.Equal(t, source, target, "every message, in its order")
	t.Logf("%d messages through %d faults, %d of them twice", m.published.Load(), faults, twice)
	require.LessOrEqual(t, twice, most, "puts that were repeated are recognised")

	is := map[string]bool{}
	for _, body := range finished {
		is[body] = true
	}
	again, rest := 0, map[string]bool{}
	for _, body := range m.west.ConsumeFrom("orders", "billing", int(m.published.Load())-len(finished), 1_000_000, func(string) time.Duration { return 0 }) {
		if rest[body] = true; is[body] {
			again++
		}
	}
	for _, bodies := range source {
		for _, body := range bodies {
			require.True(t, is[body] || rest[body], "%s is lost for the channel", body)
		}
	}
	require.LessOrEqual(t, again, 2*20+twice, "no more than was finished out of order on two partitions, or copied twice")
}

// stateIsNotShared: a second mirror with the same state file is refused.
func (m *mirrored) stateIsNotShared() {
	m.begin()
	e2etest.Within(m.t, e2etest.WaitLimit, "the mirror", func() bool { _, ok := m.sum("lockstep_mirror_lag_messages"); return ok })
	_, problems, err := m.g.Run("finish")
	require.Error(m.t, err)
	require.Contains(m.t, problems, "run one at a time")
	require.NoError(m.t, m.end(syscall.SIGINT))
}

// TestMirrorsInBothDirections: two mirrors between two clusters copy each message once, and the copy not back.
func TestMirrorsInBothDirections(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	east, west := e2etest.Start(t, 1), e2etest.Start(t, 1)
	for _, c := range []*e2etest.Cluster{east, west} {
		c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {"orders"}, "partitions": {"2"}})
		c.Whole("orders")
	}
	mirror := func(from, to *e2etest.Cluster, state string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), e2etest.Built.Path("nsqctl"), "mirror", "run", "orders", "--from-http-address="+from.Brokers[0].HTTP,
			"--nsqd-http-address="+to.Brokers[0].HTTP, "--state="+state, "--poll=200ms")
		require.NoError(t, cmd.Start())
		return cmd
	}
	dir := t.TempDir()
	there, back := mirror(east, west, filepath.Join(dir, "1")), mirror(west, east, filepath.Join(dir, "2"))
	for i, c := range []*e2etest.Cluster{east, west} {
		for n := range 50 {
			resp, err := e2etest.Passing.Post("http://"+c.Brokers[0].HTTP+"/pub?topic=orders", "", strings.NewReader(fmt.Sprintf("%d-%d", i, n)))
			require.NoError(t, err)
			_ = resp.Body.Close()
		}
	}
	for _, c := range []*e2etest.Cluster{east, west} {
		e2etest.Within(t, e2etest.WaitLimit, "all messages", func() bool { return len(c.PeekAll("orders")) >= 100 })
	}
	e2etest.Pause(time.Second) // time for a copy that comes back
	for _, c := range []*e2etest.Cluster{east, west} {
		require.Len(t, c.PeekAll("orders"), 100)
	}
	for _, p := range []*exec.Cmd{there, back} {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.Wait())
	}
	out, problems, err := east.Ctl("mirror", "run", "orders", "--from-http-address="+east.Brokers[0].HTTP, "--state="+filepath.Join(dir, "3"))
	require.Error(t, err, out)
	require.Contains(t, problems, "the same cluster")
}
