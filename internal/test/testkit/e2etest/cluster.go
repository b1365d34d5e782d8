package e2etest

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

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// Root is the repository, as a test of a package in internal/test/verify/e2e has it.
const Root = "../../../../../"

const (
	StartLimit = wait.Limit            // a broker answers /readyz
	WaitLimit  = wait.Limit            // any other condition
	PollEvery  = 10 * time.Millisecond // between two looks at a condition
)

// Cluster is a set of broker processes of one test. Only the test's own
// goroutine may call it, except for the addresses, which never change.
type Cluster struct {
	*devcluster.Cluster
	T    *testing.T
	HTTP *http.Client
	Dir  string
	nsqd string // the brokers' binary
	Down Outages
}

// Start runs brokers and waits until all of them take puts.
func Start(t *testing.T, brokers int, flags ...string) *Cluster {
	t.Helper()
	Processes(t)
	c := LayOut(t, FreePorts(t, brokers), brokers, flags...)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	return c
}

// LayOut prepares brokers; none is started, but all will be ended.
func LayOut(t *testing.T, basePort, brokers int, flags ...string) *Cluster {
	t.Helper()
	return LayOutFrom(t, Built.Path("nsqd"), basePort, brokers, flags...)
}

// LayOutFrom is layOut of brokers that run another binary.
func LayOutFrom(t *testing.T, nsqd string, basePort, brokers int, flags ...string) *Cluster {
	t.Helper()
	dir := directory(t)
	d, err := devcluster.New(devcluster.Config{
		Nodes: brokers, DataDir: dir, BasePort: basePort,
		NSQD: nsqd, Args: flags, Tied: true,
	})
	require.NoError(t, err)
	c := &Cluster{Cluster: d, T: t, Dir: dir, nsqd: nsqd, HTTP: httpClient()}
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
func (c *Cluster) end() {
	c.KillProcesses()
	c.HTTP.CloseIdleConnections()
	for _, name := range Names(c) {
		if crash := clusters.Crash(filepath.Join(c.Dir, name+".log")); crash != "" {
			c.T.Errorf("%s.log: %s", name, crash)
		}
	}
	if c.T.Failed() {
		for _, name := range Names(c) {
			c.T.Logf("%s.log ends:\n%s", name, Tail(filepath.Join(c.Dir, name+".log"), 8<<10))
		}
	}
}

// KillProcesses ends all processes, stopped ones too. They are not restarted.
func (c *Cluster) KillProcesses() {
	for _, b := range c.Brokers {
		if b.PID != 0 {
			_ = syscall.Kill(-b.PID, syscall.SIGKILL) // the whole group; gone already is fine
			_ = c.Kill(b.Name)
		}
	}
}

// Tail is the end of a file.
func Tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}

// Names are those of all brokers.
func Names(c *Cluster) (all []string) {
	for _, b := range c.Brokers {
		all = append(all, b.Name)
	}
	return all
}

// WaitReady waits until every broker takes puts.
func (c *Cluster) WaitReady() {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), StartLimit)
	defer cancel()
	require.NoError(c.T, c.Ready(ctx))
}

// Crash ends a broker with SIGKILL; errors that its clients see from now on are excused.
func (c *Cluster) Crash(name string) {
	c.T.Helper()
	c.Down.Begin(name)
	require.NoError(c.T, c.Signal(name, syscall.SIGKILL))
	c.gone(name)
}

// gone waits until a process that was killed has ended. The further signal has no effect on it.
func (c *Cluster) gone(name string) {
	c.T.Helper()
	require.NoError(c.T, c.Stop(name, WaitLimit))
}

// Restart starts a broker that was killed or stopped, and waits until it is ready.
func (c *Cluster) Restart(name string) {
	c.T.Helper()
	require.NoError(c.T, c.Start(name))
	c.ReadyAgain(name)
}

// ReadyAgain waits until a broker that was started takes puts.
func (c *Cluster) ReadyAgain(name string) {
	c.T.Helper()
	b, err := c.Broker(name)
	require.NoError(c.T, err)
	ctx, cancel := context.WithTimeout(context.Background(), StartLimit)
	defer cancel()
	require.NoError(c.T, devcluster.WaitReady(ctx, b.HTTP))
	c.Down.End(name)
}

// CrashAll ends every broker with SIGKILL, without waiting for one before the next.
func (c *Cluster) CrashAll() {
	c.T.Helper()
	for _, name := range Names(c) {
		c.Down.Begin(name)
		require.NoError(c.T, c.Signal(name, syscall.SIGKILL))
	}
	for _, name := range Names(c) {
		c.gone(name)
	}
}

// Get asks one broker for JSON.
func (c *Cluster) Get(b devcluster.Broker, path string, into any) error {
	return clusters.Get(c.HTTP, b.HTTP, path, into)
}

// Create makes a topic and its channel, and waits until it is whole.
func (c *Cluster) Create(topic, channel string, partitions int) {
	c.T.Helper()
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "partitions": {fmt.Sprint(partitions)}})
	c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
	c.Whole(topic)
}

// administerLimit is longer than a broker tries to carry an operation out.
const administerLimit = 15 * time.Second

// Post sends a request without a body, which succeeds.
func (c *Cluster) Post(b devcluster.Broker, path string, q url.Values) {
	c.T.Helper()
	client := http.Client{Timeout: administerLimit, Transport: c.HTTP.Transport}
	resp, err := client.Post("http://"+b.HTTP+path+"?"+q.Encode(), "", nil)
	require.NoError(c.T, err)
	_ = resp.Body.Close()
	require.Equal(c.T, http.StatusOK, resp.StatusCode, path)
}

// Topics are those that the first broker that answers shows.
func (c *Cluster) Topics() []api.TopicView {
	for _, b := range c.Brokers {
		var v api.ClusterView
		if !c.Down.IsDown(b.Name) && c.Get(b, "/v1/cluster", &v) == nil {
			return v.Topics
		}
	}
	return nil
}

// Topic is one of Topics, if it is there.
func (c *Cluster) Topic(name string) (api.TopicView, bool) {
	for _, t := range c.Topics() {
		if t.Topic == name {
			return t, true
		}
	}
	return api.TopicView{}, false
}

// LeaderOf is the leader of a partition, waited for.
func (c *Cluster) LeaderOf(topic string, partition int) (name string) {
	c.T.Helper()
	c.Until("a leader of "+topic, func() bool {
		v, ok := c.Topic(topic)
		if !ok || v.Partitions[partition].Leader == "" {
			return false
		}
		name = string(v.Partitions[partition].Leader)
		return !c.Down.IsDown(name)
	})
	return name
}

// Leader is the leader of a topic's first partition.
func (c *Cluster) Leader(topic string) string {
	c.T.Helper()
	return c.LeaderOf(topic, 0)
}

// Preferred reports whether the first broker of each partition's replicas leads it.
func (c *Cluster) Preferred(topic string) bool {
	v, ok := c.Topic(topic)
	return ok && !slices.ContainsFunc(v.Partitions, func(p api.PartitionView) bool {
		return len(p.Replicas) == 0 || p.Leader != p.Replicas[0]
	})
}

// Whole waits until every replica of a topic is in sync.
func (c *Cluster) Whole(topic string) {
	c.T.Helper()
	c.Until("all replicas of "+topic+" in sync", func() bool {
		v, ok := c.Topic(topic)
		return ok && clusters.InSync(v)
	})
}

// Until waits for a condition, looking often.
func (c *Cluster) Until(what string, condition func() bool) {
	c.T.Helper()
	Within(c.T, WaitLimit, what, condition)
}

// Within waits for a condition, and fails the test after the limit.
func Within(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain for %s", limit, what)
		}
		Pause(PollEvery)
	}
}

// Pause is the time between two looks at a condition.
func Pause(d time.Duration) { <-time.After(d) }

// Check runs `nsqctl check`: the replicas are equal, byte by byte.
func (c *Cluster) Check(topic string) {
	c.T.Helper()
	out, err := c.Nsqctl("check", topic, "--wait", "20s")
	require.NoError(c.T, err, "nsqctl check %s: %s", topic, out)
}

// Nsqctl runs a command of nsqctl at the first broker and returns all that it prints.
func (c *Cluster) Nsqctl(args ...string) (string, error) {
	cmd := exec.Command(Built.Path("nsqctl"), append(args, "--nsqd-http-address", c.Brokers[0].HTTP)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Counters adds up what the live brokers count since they started.
func (c *Cluster) Counters() (sum api.CounterTotals) {
	for _, b := range c.Brokers {
		var v api.ClusterView
		if c.Get(b, "/v1/cluster", &v) == nil {
			sum.Add(v.Counters)
		}
	}
	return sum
}

// Drained waits until a channel has nothing left at any broker that is up.
func (c *Cluster) Drained(topic, channel string) {
	c.T.Helper()
	c.Until("an empty channel "+channel, func() bool {
		var left int64
		known := false
		for _, b := range c.Brokers {
			var s struct{ Topics []api.TopicStats }
			if c.Down.IsDown(b.Name) {
				continue
			}
			if c.Get(b, "/stats?format=json&topic="+url.QueryEscape(topic), &s) != nil {
				return false
			}
			n, ok := clusters.Left(s.Topics, channel)
			left, known = left+n, known || ok
		}
		return known && left == 0
	})
}
