package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/client"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
)

const (
	topic, channel = "orders", "billing"
	waitLimit      = 60 * time.Second
)

// binaries is the directory of nsqd; it is set before any test runs.
var binaries string

func TestMain(m *testing.M) {
	if binaries = os.Getenv(clusters.BinariesEnv); binaries != "" {
		goleak.VerifyTestMain(m)
		return
	}
	dir, err := os.MkdirTemp("", "lockstep-client-")
	if err == nil {
		build := exec.Command("go", "build", "-o", dir+"/", "./cmd/nsqd", "./cmd/nsqctl")
		build.Dir, build.Stdout, build.Stderr = "../..", os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build the binaries:", err)
		os.Exit(1)
	}
	binaries = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// cluster is three brokers of one test.
type cluster struct {
	*devcluster.Cluster
	t    testing.TB
	dir  string
	http *http.Client
}

// start runs three brokers and waits until they take puts.
func start(t testing.TB, flags ...string) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
	dir := t.TempDir()
	d, err := devcluster.New(devcluster.Config{Nodes: 3, DataDir: dir, BasePort: freePorts(t), NSQD: filepath.Join(binaries, "nsqd"), Args: flags, Tied: true})
	require.NoError(t, err)
	c := &cluster{Cluster: d, t: t, dir: dir, http: &http.Client{Timeout: 5 * time.Second}}
	t.Cleanup(c.end)
	require.NoError(t, c.StartAll())
	c.ready()
	return c
}

// freePorts finds a base port with the ports of three brokers free.
func freePorts(t testing.TB) int {
	t.Helper()
	free := func(base int) bool {
		for i := range 3 {
			for plus := range 6 {
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+100*i+plus))
				if err != nil {
					return false
				}
				_ = l.Close()
			}
		}
		return true
	}
	for range 200 {
		if base := 27000 + rand.IntN(70)*10; free(base) {
			return base
		}
	}
	t.Fatal("no free ports between 27000 and 27999")
	return 0
}

// end kills the brokers, and shows the ends of the logs of a failed test.
func (c *cluster) end() {
	for _, b := range c.Brokers {
		if b.PID != 0 {
			_ = syscall.Kill(-b.PID, syscall.SIGKILL) // the whole group; gone already is fine
			_ = c.Kill(b.Name)
		}
		log, _ := os.ReadFile(filepath.Join(c.dir, b.Name+".log"))
		if c.t.Failed() {
			c.t.Logf("%s.log ends:\n%s", b.Name, log[max(0, len(log)-4<<10):])
		}
		if crash := clusters.Crash(filepath.Join(c.dir, b.Name+".log")); crash != "" {
			c.t.Errorf("%s.log: %s", b.Name, crash)
		}
	}
	c.http.CloseIdleConnections()
}

func (c *cluster) ready() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	require.NoError(c.t, c.Ready(ctx))
}

// tcp lists the TCP addresses.
func (c *cluster) tcp() (all []string) {
	for _, b := range c.Brokers {
		all = append(all, b.TCP)
	}
	return all
}

// create makes a topic with its channel, and waits until all replicas are in sync.
func (c *cluster) create(topic string, partitions int) {
	c.t.Helper()
	c.post("/topic/create", url.Values{"topic": {topic}, "partitions": {fmt.Sprint(partitions)}})
	c.post("/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
	c.whole(topic)
}

func (c *cluster) post(path string, q url.Values) {
	c.t.Helper()
	resp, err := c.http.Post("http://"+c.Brokers[0].HTTP+path+"?"+q.Encode(), "", nil)
	require.NoError(c.t, err)
	_ = resp.Body.Close()
	require.Equal(c.t, http.StatusOK, resp.StatusCode, path)
}

// topic is a topic as the first broker that answers shows it.
func (c *cluster) topic(name string) (found api.TopicView, ok bool) {
	for _, b := range c.Brokers {
		resp, err := c.http.Get("http://" + b.HTTP + "/v1/cluster")
		if err != nil {
			continue
		}
		var v api.ClusterView
		err = json.NewDecoder(resp.Body).Decode(&v)
		_ = resp.Body.Close()
		if i := slices.IndexFunc(v.Topics, func(t api.TopicView) bool { return t.Topic == name }); err == nil && i >= 0 {
			return v.Topics[i], true
		}
	}
	return found, false
}

func (c *cluster) whole(topic string) {
	c.t.Helper()
	c.until("all replicas in sync", func() bool {
		v, ok := c.topic(topic)
		return ok && clusters.InSync(v)
	})
}

// leader is the name of the broker that leads the first partition.
func (c *cluster) leader(topic string) (name string) {
	c.t.Helper()
	c.until("a leader", func() bool {
		v, ok := c.topic(topic)
		if ok {
			name = string(v.Partitions[0].Leader)
		}
		return name != ""
	})
	return name
}

// restart starts a broker again and waits until it takes puts.
func (c *cluster) restart(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.Start(name))
	}
	c.ready()
}

func (c *cluster) until(what string, condition func() bool) {
	c.t.Helper()
	require.Eventually(c.t, condition, waitLimit, 10*time.Millisecond, what)
}

// open opens a client that is closed at the end of the test.
func (c *cluster) open(o client.Options, addresses ...string) *client.Client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if len(addresses) == 0 {
		addresses = c.tcp()
	}
	x, err := client.Open(ctx, addresses, o)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = x.Close(ctx)
	})
	return x
}
