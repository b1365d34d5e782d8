package e2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestExternalEtcd: clusters of two and of four brokers on one etcd outside, with
// the limits of a stock one; the leader of each is killed and comes back.
func TestExternalEtcd(t *testing.T) {
	processes(t)
	endpoint := externalEtcd(t).endpoint
	for _, brokers := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			c := external(t, endpoint, brokers)
			const partitions = 100 // more than fit into one transaction with two operations each
			c.create(topic, channel, partitions)
			out, err := c.nsqctl("topic", "create", "too-many", "--partitions", "200")
			require.Error(t, err)
			require.Contains(t, out, "--max-txn-ops")
			v, _ := c.topic(topic)
			require.Equal(t, min(brokers, 3), v.ReplicationFactor)
			require.Equal(t, 2, v.MinInSync)
			for _, b := range c.Brokers {
				require.Equal(t, history.OK, putOnce(b, topic, "before "+b.Name))
			}
			victim := c.leader(topic)
			c.kill(victim)
			if brokers > 2 {
				require.Equal(t, history.OK, putOnce(c.other(victim), topic, "while one is dead"))
			}
			c.restart(victim)
			c.whole(topic)
			require.Equal(t, history.OK, putOnce(c.other(victim), topic, "after"))
			if brokers > 3 {
				c.decommission(victim)
			}
		})
	}
}

// decommission frees a broker of all replicas.
func (c *cluster) decommission(name string) {
	c.t.Helper()
	out, err := c.nsqctl("cluster", "decommission", name)
	require.NoError(c.t, err, out)
	c.until(name+" without replicas", func() bool {
		v, ok := c.topic(topic)
		for _, p := range v.Partitions {
			ok = ok && !slices.Contains(p.Replicas, ident.Node(name)) && len(p.ISR) == len(p.Replicas)
		}
		return ok
	})
	c.check(topic)
}

// other is a broker that is not the named one.
func (c *cluster) other(name string) devcluster.Broker {
	for _, b := range c.Brokers {
		if b.Name != name {
			return b
		}
	}
	panic("a cluster of one")
}

// external starts brokers on an etcd outside, as a cluster of their own in it.
func external(t *testing.T, endpoint string, brokers int) *cluster {
	t.Helper()
	dir := directory(t)
	d, err := devcluster.New(devcluster.Config{
		Nodes: brokers, DataDir: dir, BasePort: freePorts(t, brokers), NSQD: built.path("nsqd"), EtcdEndpoints: endpoint,
		Args: []string{fmt.Sprintf("--cluster-name=of-%d", brokers)}, Tied: true,
	})
	require.NoError(t, err)
	c := &cluster{Cluster: d, t: t, dir: dir, http: httpClient()}
	t.Cleanup(c.end)
	require.NoError(t, c.StartAll())
	c.ready()
	return c
}

// etcd is a process of `nsqctl etcd`.
type etcd struct {
	t        *testing.T
	dir      string
	base     int
	endpoint string
	cmd      *exec.Cmd
}

// externalEtcd runs `nsqctl etcd` for the length of a test.
func externalEtcd(t *testing.T) *etcd {
	t.Helper()
	e := &etcd{t: t, dir: t.TempDir(), base: freePorts(t, 1)}
	e.endpoint = fmt.Sprintf("http://127.0.0.1:%d", e.base+4)
	e.start()
	t.Cleanup(func() {
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		_ = e.cmd.Wait()
	})
	return e
}

// start starts it, again too, and waits until it is ready.
func (e *etcd) start() {
	e.t.Helper()
	e.cmd = exec.Command(built.path("nsqctl"), "etcd", "--data-dir="+e.dir, fmt.Sprintf("--client-address=127.0.0.1:%d", e.base+4),
		fmt.Sprintf("--peer-address=127.0.0.1:%d", e.base+5))
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := e.cmd.StdoutPipe()
	require.NoError(e.t, err)
	require.NoError(e.t, e.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(e.t, err)
	require.True(e.t, strings.HasPrefix(line, "ready"), line)
}

// kill ends it with SIGKILL.
func (e *etcd) kill() {
	require.NoError(e.t, e.cmd.Process.Kill())
	_ = e.cmd.Wait() // "signal: killed"
}

// TestPublishingGoesOnWithoutMetadata: etcd hangs, then it is killed, each for
// longer than the brokers' sessions. Clients do not notice, because all replicas answer.
// Changes of the metadata wait until etcd is back.
func TestPublishingGoesOnWithoutMetadata(t *testing.T) {
	processes(t)
	e := externalEtcd(t)
	c := external(t, e.endpoint, 3)
	c.create(topic, channel, 4)
	s := c.loaded(2)
	const away = sessionTTL + 2*time.Second
	for _, fault := range []struct {
		what       string
		begin, end func()
	}{
		{
			"hangs",
			func() { require.NoError(t, e.cmd.Process.Signal(syscall.SIGSTOP)) },
			func() { require.NoError(t, e.cmd.Process.Signal(syscall.SIGCONT)) },
		},
		{"is dead", e.kill, e.start},
	} {
		// Leaders that were all replaced by one are given back after a moment. A metadata
		// store that dies just then costs such a partition --rollback-grace: whether the
		// other one leads cannot be known (docs/robustness.md, "Known limits").
		c.until("the preferred brokers lead", func() bool { return c.preferred(topic) })
		began := time.Now()
		fault.begin()
		pause(away) // the fault's own length
		s.waitProgress(200)
		ended := time.Now()
		got := s.stall(began, ended)
		t.Logf("etcd %s for %s: %s", fault.what, ended.Sub(began).Round(time.Millisecond), got)
		require.Less(t, got.gap, slack(500*time.Millisecond), fault.what)
		fault.end()
		s.waitProgress(200)
		s.whole(topic)
	}
	victim := c.leader(topic)
	s.kill(victim)
	s.waitProgress(200)
	s.restart(victim)
	s.whole(topic)
	s.finish(t)
}
