package chaos

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/skew"
)

const (
	readyLimit = 60 * time.Second // a broker that was started takes puts
	wholeLimit = 60 * time.Second // all replicas are in sync after the last fault is healed
	pollEvery  = 20 * time.Millisecond
	topic      = "events"
)

// broker is one process in one host. Only the test's own goroutine starts and
// ends it.
type broker struct {
	name    string
	host    *host
	command []string
	dir     string // its data path
	log     string
	process *exec.Cmd     // nil: it does not run
	gone    chan struct{} // closed when the process has ended
	ended   bool          // since it was started last
	stopped bool          // by SIGSTOP
	full    bool          // its disk is, or was: then it may end by itself
	clock   *skew.Clock   // its wall clock; nil: the machine's
	env     []string
	disk    *hangingDisk // nil: it cannot hang
}

func (b *broker) number() int  { return b.host.number }
func (b *broker) tcp() string  { return address(rpcLane, b.number()) + ":4150" }
func (b *broker) http() string { return address(rpcLane, b.number()) + ":4151" }

// cluster is the brokers of a round.
type cluster struct {
	t       *testing.T
	dir     string
	net     *network
	brokers []*broker
	etcd    *broker // the external one; nil: every broker embeds a member
	small   *broker // the one with a disk of smallDisk bytes
	client  *http.Client
	watch   *watcher
	health  *health
	moves   atomic.Int64 // of replicas, accepted
	topics  []string     // those that faults are about
	// hangsAtMost is the longest hang of a disk.
	hangsAtMost time.Duration
}

// newCluster starts brokers and waits until all of them take puts.
func newCluster(t *testing.T, brokers int, external bool) *cluster {
	c := prepared(t, brokers, external)
	c.begin()
	return c
}

// prepared is a cluster whose brokers have not been started.
func prepared(t *testing.T, brokers int, external bool) *cluster {
	c := &cluster{t: t, dir: directory(t), client: &http.Client{Timeout: time.Second}, hangsAtMost: longHang, topics: []string{topic}}
	hosts := brokers
	if external {
		hosts++
	}
	c.net = newNetwork(t, hosts)
	c.health = c.net.health
	t.Cleanup(c.end)
	if external {
		c.etcd = c.layOutEtcd(c.net.hosts[brokers])
		c.start(c.etcd)
	}
	for _, h := range c.net.hosts[:brokers] {
		c.brokers = append(c.brokers, c.layOut(h, c.metadata(h, brokers)))
	}
	c.small = c.brokers[brokers-1]
	c.small.shrinkDisk(t)
	return c
}

func (c *cluster) begin() {
	for _, b := range c.brokers {
		c.start(b)
	}
	for _, b := range c.brokers {
		c.ready(b)
	}
	c.watch = watchCounters(c)
}

// metadata are a broker's flags about etcd.
func (c *cluster) metadata(h *host, brokers int) []string {
	at := func(port int) string { return fmt.Sprintf("%s:%d", address(etcdLane, h.number), port) }
	if c.etcd != nil {
		return []string{"--etcd-endpoints=http://" + address(etcdLane, c.etcd.number()) + ":4154", "--replication-factor=3"}
	}
	var members []string
	for i := 1; i <= brokers; i++ {
		members = append(members, fmt.Sprintf("n%d=http://%s:4155", i, address(etcdLane, i)))
	}
	return []string{"--etcd-client-address=" + at(4154), "--etcd-peer-address=" + at(4155),
		"--etcd-initial-cluster=" + strings.Join(members, ",")}
}

// layOut prepares a broker.
func (c *cluster) layOut(h *host, metadata []string) *broker {
	name := fmt.Sprintf("n%d", h.number)
	b := &broker{name: name, host: h, dir: filepath.Join(c.dir, name), log: filepath.Join(c.dir, name+".log")}
	require.NoError(c.t, os.MkdirAll(b.dir, 0o755))
	b.command = append(h.enter(), binary("nsqd"), "--node-name="+name, "--data-path="+b.dir,
		"--broadcast-address="+address(rpcLane, h.number), "--tcp-address="+b.tcp(), "--http-address="+b.http(),
		fmt.Sprintf("--rpc-address=%s:4153", address(rpcLane, h.number)))
	b.command = append(append(b.command, openFlags()...), metadata...)
	return b
}

// openFlags let brokers listen beyond loopback without users. Older builds, which figures
// are compared with, need and know only the first one.
var openFlags = sync.OnceValue(func() []string {
	flags := []string{"--insecure"}
	help, _ := exec.Command(binary("nsqd"), "--help").CombinedOutput()
	for _, flag := range []string{"--insecure-clients", "--insecure-http"} {
		if bytes.Contains(help, []byte(flag)) {
			flags = append(flags, flag)
		}
	}
	return flags
})

// layOutEtcd prepares an etcd of its own: this binary, see runEtcd.
func (c *cluster) layOutEtcd(h *host) *broker {
	b := &broker{name: "etcd", host: h, dir: filepath.Join(c.dir, "etcd"), log: filepath.Join(c.dir, "etcd.log")}
	b.command = append(h.enter(), "env", etcdEnv+"="+address(etcdLane, h.number), etcdDirEnv+"="+b.dir, os.Args[0])
	return b
}

// logged reports whether a broker has said something.
func (b *broker) logged(text string) bool {
	log, err := os.ReadFile(b.log)
	return err == nil && strings.Contains(string(log), text)
}

// directory holds the logs and the disks; it stays if the test fails.
func directory(t *testing.T) string {
	dir, err := os.MkdirTemp(os.Getenv("LOCKSTEP_KEEP"), "chaos-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("logs and data: " + dir)
		} else {
			_ = os.RemoveAll(dir)
		}
	})
	return dir
}

func (c *cluster) start(b *broker) {
	c.t.Helper()
	if b.process != nil {
		return
	}
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(c.t, err)
	defer log.Close()
	b.process = exec.Command(b.command[0], b.command[1:]...)
	b.process.Stdout, b.process.Stderr = log, log
	b.process.Env = append(os.Environ(), b.env...)
	b.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, b.process.Start())
	process, gone := b.process, make(chan struct{})
	b.gone = gone
	go func() { _ = process.Wait(); close(gone) }() // ends with the process
	if b.ended {
		b.ended = false
		go c.recovers(b, gone) // ends when it answers, or with the process
	}
}

// recovers counts a broker that was started again as well as soon as it answers.
func (c *cluster) recovers(b *broker, gone chan struct{}) {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	defer c.health.hit(b.name, -1)
	for {
		var v api.ClusterView
		if b == c.etcd || clusters.Get(client, b.http(), "/v1/cluster", &v) == nil {
			return
		}
		select {
		case <-gone:
			return
		case <-time.After(pollEvery):
		}
	}
}

// fell counts a broker that does not run as hurt until it answers again.
func (c *cluster) fell(b *broker) {
	if !b.ended {
		b.ended = true
		c.health.hit(b.name, 1)
	}
}

// revive starts a broker again that ended by itself, which is a failure of the test.
func (c *cluster) revive(b *broker) {
	if b.process == nil {
		return
	}
	select {
	case <-b.gone:
		if !b.full {
			c.t.Errorf("%s ended by itself: %s", b.name, b.process.ProcessState)
		}
		b.process = nil
		c.fell(b)
		c.start(b)
	default:
	}
}

// kill ends a broker with SIGKILL; one that does not run stays so.
func (c *cluster) kill(brokers ...*broker) {
	for _, b := range brokers {
		if b.process != nil {
			c.fell(b)
		}
		c.signal(b, syscall.SIGKILL)
	}
	for _, b := range brokers {
		if b.process != nil {
			<-b.gone
			c.wakes(b)
			b.process = nil
		}
	}
}

// stop ends a broker as planned.
func (c *cluster) stop(b *broker) {
	if b.process == nil {
		return
	}
	c.resume(b)
	c.fell(b)
	c.signal(b, syscall.SIGTERM)
	impatient := time.AfterFunc(20*time.Second, func() { c.signal(b, syscall.SIGKILL) })
	defer impatient.Stop()
	<-b.gone
	b.process = nil
}

func (c *cluster) pause(b *broker) {
	if b.process != nil && !b.stopped {
		b.stopped = true
		c.health.hit(b.name, 1)
	}
	c.signal(b, syscall.SIGSTOP)
}

func (c *cluster) resume(b *broker) {
	c.signal(b, syscall.SIGCONT)
	c.wakes(b)
}

// wakes notes that a broker is not stopped any more.
func (c *cluster) wakes(b *broker) {
	if b.stopped {
		b.stopped = false
		c.health.hit(b.name, -1)
	}
}

func (c *cluster) signal(b *broker, sig syscall.Signal) {
	if b.process != nil {
		_ = b.process.Process.Signal(sig)
	}
}

func (c *cluster) ready(b *broker) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	require.NoError(c.t, devcluster.WaitReady(ctx, b.http()), "%s is not ready; see %s", b.name, b.log)
}

// end kills what runs, and looks for what the Go runtime says of a wrong program.
func (c *cluster) end() {
	if c.watch != nil {
		c.watch.stop()
	}
	c.kill(c.brokers...)
	if c.etcd != nil {
		c.kill(c.etcd)
	}
	c.client.CloseIdleConnections()
	for _, b := range c.brokers {
		if crash := clusters.Crash(b.log); crash != "" {
			c.t.Errorf("%s: %s", b.log, crash)
		}
	}
}

// get asks one broker for JSON.
func (c *cluster) get(b *broker, path string, into any) error {
	return clusters.Get(c.client, b.http(), path, into)
}

func (c *cluster) post(path string, q url.Values) { c.send(path, q, "") }

// send posts a body to the first broker.
func (c *cluster) send(path string, q url.Values, body string) {
	c.t.Helper()
	client := http.Client{Timeout: 15 * time.Second, Transport: c.client.Transport} // longer than a broker tries
	resp, err := client.Post("http://"+c.brokers[0].http()+path+"?"+q.Encode(), "", strings.NewReader(body))
	require.NoError(c.t, err)
	_ = resp.Body.Close()
	require.Equal(c.t, http.StatusOK, resp.StatusCode, path)
}

// view is the topic as the first broker that answers shows it.
func (c *cluster) view() (api.TopicView, bool) {
	for _, b := range c.brokers {
		if v, ok := c.viewOf(b); ok {
			return v, true
		}
	}
	return api.TopicView{}, false
}

func (c *cluster) viewOf(b *broker) (api.TopicView, bool) {
	if b.process == nil || b.stopped {
		return api.TopicView{}, false
	}
	return c.topicAt(b)
}

// topicAt is the topic as a broker shows it that may be dead.
func (c *cluster) topicAt(b *broker) (api.TopicView, bool) {
	all := c.topicsAt(b)
	if i := slices.IndexFunc(all, func(v api.TopicView) bool { return v.Topic == topic }); i >= 0 {
		return all[i], true
	}
	return api.TopicView{}, false
}

// topicsAt are the topics that faults are about, as a broker shows them that may be dead.
func (c *cluster) topicsAt(b *broker) []api.TopicView {
	var v api.ClusterView
	if c.get(b, "/v1/cluster", &v) != nil {
		return nil
	}
	return slices.DeleteFunc(v.Topics, func(t api.TopicView) bool { return !slices.Contains(c.topics, t.Topic) })
}

// whole reports whether every broker sees every replica in sync.
func (c *cluster) whole() bool {
	for _, b := range c.brokers {
		c.revive(b)
	}
	for _, b := range c.brokers {
		if b.process == nil || b.stopped {
			return false
		}
		all := c.topicsAt(b)
		if len(all) < len(c.topics) || slices.ContainsFunc(all, func(v api.TopicView) bool {
			moving := slices.ContainsFunc(v.Partitions, func(p api.PartitionView) bool { return len(p.Target) > 0 })
			return moving || !clusters.InSync(v)
		}) {
			return false
		}
	}
	return true
}

// within waits for a condition and says how long it took; false at the limit.
func within(limit time.Duration, condition func() bool) (time.Duration, bool) {
	began := time.Now()
	for !condition() {
		if time.Since(began) > limit {
			return time.Since(began), false
		}
		pause(pollEvery)
	}
	return time.Since(began), true
}

// pause is the time between two looks at a condition.
func pause(d time.Duration) { <-time.After(d) }

// left is what a channel still has to deliver, over all brokers.
func (c *cluster) left(channel string) (n int64, known bool) { return c.leftOf(topic, channel) }

// leftOf is the same of any topic.
func (c *cluster) leftOf(name, channel string) (n int64, known bool) {
	for _, b := range c.brokers {
		var s struct{ Topics []api.TopicStats }
		if c.get(b, "/stats?format=json&topic="+name, &s) != nil {
			return 0, false
		}
		here, ok := clusters.Left(s.Topics, channel)
		n, known = n+here, known || ok
	}
	return n, known
}

// check runs `nsqctl check`: the replicas are equal, batch by batch.
func (c *cluster) check() error {
	out, err := exec.Command(binary("nsqctl"), "check", topic, "--wait", "20s", "--nsqd-http-address", c.brokers[0].http()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("nsqctl check: %w: %s", err, out)
	}
	return nil
}
