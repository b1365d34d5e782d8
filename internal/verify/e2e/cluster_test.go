package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
)

const (
	startLimit = 60 * time.Second // a broker answers /readyz; generous, it is not what is tested
	waitLimit  = 60 * time.Second // any other condition
	pollEvery  = 10 * time.Millisecond
)

// cluster is a set of broker processes of one test. Only the test's own
// goroutine may call it, except for the addresses, which never change.
type cluster struct {
	*devcluster.Cluster
	t    *testing.T
	http *http.Client
	dir  string
	nsqd string // the brokers' binary
	down outages
}

// start runs brokers and waits until all of them take puts.
func start(t *testing.T, brokers int, flags ...string) *cluster {
	t.Helper()
	processes(t)
	c := layOut(t, freePorts(t, brokers), brokers, flags...)
	require.NoError(t, c.StartAll())
	c.ready()
	return c
}

// layOut prepares brokers; none is started, but all will be ended.
func layOut(t *testing.T, basePort, brokers int, flags ...string) *cluster {
	t.Helper()
	return layOutFrom(t, built.path("nsqd"), basePort, brokers, flags...)
}

// layOutFrom is layOut of brokers that run another binary.
func layOutFrom(t *testing.T, nsqd string, basePort, brokers int, flags ...string) *cluster {
	t.Helper()
	dir := directory(t)
	d, err := devcluster.New(devcluster.Config{
		Nodes: brokers, DataDir: dir, BasePort: basePort,
		NSQD: nsqd, Args: flags, Tied: true,
	})
	require.NoError(t, err)
	c := &cluster{Cluster: d, t: t, dir: dir, nsqd: nsqd, http: httpClient()}
	t.Cleanup(c.end)
	return c
}

func httpClient() *http.Client { return &http.Client{Timeout: 3 * time.Second} }

// directory is the test's own, kept if LOCKSTEP_KEEP names a place for it.
func directory(t *testing.T) string {
	keep := os.Getenv("LOCKSTEP_KEEP")
	if keep == "" {
		return t.TempDir()
	}
	dir := filepath.Join(keep, strings.ReplaceAll(t.Name(), "/", "_")+time.Now().Format("-150405"))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// end kills what still runs, and shows the ends of the logs of a failed test.
func (c *cluster) end() {
	c.killProcesses()
	c.http.CloseIdleConnections()
	for _, name := range names(c) {
		if crash := clusters.Crash(filepath.Join(c.dir, name+".log")); crash != "" {
			c.t.Errorf("%s.log: %s", name, crash)
		}
	}
	if c.t.Failed() {
		for _, name := range names(c) {
			c.t.Logf("%s.log ends:\n%s", name, tail(filepath.Join(c.dir, name+".log"), 8<<10))
		}
	}
}

// killProcesses ends all processes, stopped ones too. They are not restarted.
func (c *cluster) killProcesses() {
	for _, b := range c.Brokers {
		if b.PID != 0 {
			_ = syscall.Kill(-b.PID, syscall.SIGKILL) // the whole group; gone already is fine
			_ = c.Kill(b.Name)
		}
	}
}

func tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}

func names(c *cluster) (all []string) {
	for _, b := range c.Brokers {
		all = append(all, b.Name)
	}
	return all
}

// ready waits until every broker takes puts.
func (c *cluster) ready() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	require.NoError(c.t, c.Ready(ctx))
}

// kill ends a broker with SIGKILL; what clients of it see from now on is excused.
func (c *cluster) kill(name string) {
	c.t.Helper()
	c.down.begin(name)
	require.NoError(c.t, c.Kill(name))
}

// restart starts a broker that was killed or stopped, and waits until it is ready.
func (c *cluster) restart(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Start(name))
	c.readyAgain(name)
}

// readyAgain waits until a broker that was started takes puts.
func (c *cluster) readyAgain(name string) {
	c.t.Helper()
	b, err := c.Broker(name)
	require.NoError(c.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	require.NoError(c.t, devcluster.WaitReady(ctx, b.HTTP))
	c.down.end(name)
}

// killAll ends every broker with SIGKILL, without waiting for one before the next.
func (c *cluster) killAll() {
	c.t.Helper()
	for _, name := range names(c) {
		c.down.begin(name)
		require.NoError(c.t, c.Signal(name, syscall.SIGKILL))
	}
	for _, name := range names(c) {
		require.NoError(c.t, c.Kill(name))
	}
}

// get asks one broker for JSON.
func (c *cluster) get(b devcluster.Broker, path string, into any) error {
	return clusters.Get(c.http, b.HTTP, path, into)
}

// create makes a topic and its channel, and waits until it is whole.
func (c *cluster) create(topic, channel string, partitions int) {
	c.t.Helper()
	c.post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "partitions": {fmt.Sprint(partitions)}})
	c.post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
	c.whole(topic)
}

func (c *cluster) post(b devcluster.Broker, path string, q url.Values) {
	c.t.Helper()
	resp, err := c.http.Post("http://"+b.HTTP+path+"?"+q.Encode(), "", nil)
	require.NoError(c.t, err)
	_ = resp.Body.Close()
	require.Equal(c.t, http.StatusOK, resp.StatusCode, path)
}

// topics are those that the first broker that answers shows.
func (c *cluster) topics() []edge.TopicView {
	for _, b := range c.Brokers {
		var v edge.ClusterView
		if !c.down.isDown(b.Name) && c.get(b, "/v1/cluster", &v) == nil {
			return v.Topics
		}
	}
	return nil
}

func (c *cluster) topic(name string) (edge.TopicView, bool) {
	for _, t := range c.topics() {
		if t.Topic == name {
			return t, true
		}
	}
	return edge.TopicView{}, false
}

// leaderOf is the leader of a partition, waited for.
func (c *cluster) leaderOf(topic string, partition int) (name string) {
	c.t.Helper()
	c.until("a leader of "+topic, func() bool {
		v, ok := c.topic(topic)
		if !ok || v.Partitions[partition].Leader == "" {
			return false
		}
		name = string(v.Partitions[partition].Leader)
		return !c.down.isDown(name)
	})
	return name
}

// leader is the leader of a topic's first partition.
func (c *cluster) leader(topic string) string {
	c.t.Helper()
	return c.leaderOf(topic, 0)
}

// preferred reports whether the first broker of each partition's replicas leads it.
func (c *cluster) preferred(topic string) bool {
	v, ok := c.topic(topic)
	return ok && !slices.ContainsFunc(v.Partitions, func(p edge.PartitionView) bool {
		return len(p.Replicas) == 0 || p.Leader != p.Replicas[0]
	})
}

// whole waits until every replica of a topic is in sync.
func (c *cluster) whole(topic string) {
	c.t.Helper()
	c.until("all replicas of "+topic+" in sync", func() bool {
		v, ok := c.topic(topic)
		return ok && clusters.InSync(v)
	})
}

// until waits for a condition, looking often.
func (c *cluster) until(what string, condition func() bool) {
	c.t.Helper()
	within(c.t, waitLimit, what, condition)
}

func within(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain for %s", limit, what)
		}
		pause(pollEvery)
	}
}

// pause is the time between two looks at a condition.
func pause(d time.Duration) { <-time.After(d) }

// check runs `nsqctl check`: the replicas are equal, byte by byte.
func (c *cluster) check(topic string) {
	c.t.Helper()
	out, err := c.nsqctl("check", topic, "--wait", "20s")
	require.NoError(c.t, err, "nsqctl check %s: %s", topic, out)
}

func (c *cluster) nsqctl(args ...string) (string, error) {
	cmd := exec.Command(built.path("nsqctl"), append(args, "--nsqd-http-address", c.Brokers[0].HTTP)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// counters adds up what the live brokers count since they started.
func (c *cluster) counters() (sum edge.CounterTotals) {
	for _, b := range c.Brokers {
		var v edge.ClusterView
		if c.get(b, "/v1/cluster", &v) == nil {
			sum.Add(v.Counters)
		}
	}
	return sum
}

// drained waits until a channel has nothing left at any broker that is up.
func (c *cluster) drained(topic, channel string) {
	c.t.Helper()
	c.until("an empty channel "+channel, func() bool {
		var left int64
		known := false
		for _, b := range c.Brokers {
			var s struct{ Topics []edge.TopicStats }
			if c.down.isDown(b.Name) {
				continue
			}
			if c.get(b, "/stats?format=json&topic="+url.QueryEscape(topic), &s) != nil {
				return false
			}
			n, ok := clusters.Left(s.Topics, channel)
			left, known = left+n, known || ok
		}
		return known && left == 0
	})
}
