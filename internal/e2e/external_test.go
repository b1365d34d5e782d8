package e2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/e2e/history"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestExternalEtcd: clusters of two and of four brokers on one etcd outside, with
// the limits of a stock one; the leader of each is killed and comes back.
func TestExternalEtcd(t *testing.T) {
	processes(t)
	endpoint := externalEtcd(t)
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

// externalEtcd runs `nsqctl etcd` for the length of a test.
func externalEtcd(t *testing.T) (endpoint string) {
	t.Helper()
	base := freePorts(t, 1)
	client := fmt.Sprintf("127.0.0.1:%d", base+4)
	cmd := exec.Command(built.path("nsqctl"), "etcd", "--data-dir="+t.TempDir(), "--client-address="+client,
		fmt.Sprintf("--peer-address=127.0.0.1:%d", base+5))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "ready"), line)
	return "http://" + client
}
