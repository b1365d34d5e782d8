package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestOldCopyAtAColdStart: n1 and n2 alone hold the last puts, and that n3 is not in
// sync; then both stop, and n1 comes back with an old copy of its disk. With n3 it
// would be a majority that knows nothing of these puts (P1).
func TestOldCopyAtAColdStart(t *testing.T) {
	for _, late := range []time.Duration{700 * time.Millisecond, 8 * time.Second}[:rounds(1, 2)] {
		t.Run(late.String(), func(t *testing.T) {
			c := start(t, 3)
			c.create(topic, channel, 1)
			require.Equal(t, history.OK, putOnce(c.Brokers[1], topic, "before"))
			c.whole(topic)
			b, err := c.Broker("n1")
			require.NoError(t, err)
			copied := b.DataDir + ".copy"
			require.NoError(t, exec.Command("cp", "-a", b.DataDir, copied).Run())
			c.kill("n3")
			const puts = 100
			for i := range puts {
				require.Equal(t, history.OK, putOnce(c.Brokers[1], topic, fmt.Sprintf("m%d", i)))
			}
			for _, name := range []string{"n1", "n2"} {
				c.down.begin(name)
				require.NoError(t, c.Stop(name, stopLimit))
			}
			require.NoError(t, os.RemoveAll(b.DataDir))
			require.NoError(t, os.Rename(copied, b.DataDir))
			require.NoError(t, c.Start("n1"))
			require.NoError(t, c.Start("n3"))
			pause(late)
			require.NoError(t, c.Start("n2"))
			for _, name := range names(c) {
				c.readyAgain(name)
			}
			c.whole(topic)
			require.EqualValues(t, puts+1, c.committed(topic), "what was acknowledged is there")
			c.check(topic)
			require.Regexp(t, "the data path is an? (old )?copy", c.logged("n1"), "by its marks, or by what n2 saw")
			for _, name := range names(c) {
				require.NotContains(t, c.logged(name), "ALARM")
			}
		})
	}
}

// stopLimit bounds a planned stop.
const stopLimit = 20 * time.Second

// TestCopiedConfigurationHurtsNobody: a second broker starts under the name of one
// that runs, with its configuration and an empty data path. It is refused; the one
// that runs goes on.
func TestCopiedConfigurationHurtsNobody(t *testing.T) {
	processes(t)
	for _, embedded := range []bool{true, false} {
		t.Run(fmt.Sprintf("embedded %t", embedded), func(t *testing.T) {
			var c *cluster
			if embedded {
				c = start(t, 3)
			} else {
				c = external(t, externalEtcd(t).endpoint, 2)
			}
			c.create(topic, channel, 1)
			twin, err := c.Broker("n2")
			require.NoError(t, err)
			code, said := c.twin(t, *twin, embedded)
			require.Equal(t, 1, code, said)
			require.Contains(t, said, "a --node-name of its own", said)
			require.Empty(t, c.Dead("n2"))
			require.Equal(t, history.OK, putOnce(*twin, topic, "goes on"))
			c.whole(topic)
			require.NotContains(t, c.logged("n2"), "REGISTRATION lost")
		})
	}
}

// twin runs a broker under the name of another one until it ends, as after a copy of
// the configuration to another host.
func (c *cluster) twin(t *testing.T, of devcluster.Broker, embedded bool) (code int, said string) {
	t.Helper()
	host, port := "127.0.0.1", freePorts(t, 1)
	flags := []string{"--node-name=" + of.Name, "--data-path=" + t.TempDir(), "--broadcast-address=" + host}
	for i, name := range []string{"tcp", "http", "https", "rpc", "etcd-client", "etcd-peer"} {
		if embedded || i < 4 {
			flags = append(flags, fmt.Sprintf("--%s-address=%s:%d", name, host, port+i))
		}
	}
	own, err := c.Args(of.Name)
	require.NoError(t, err)
	for _, arg := range own {
		if strings.HasPrefix(arg, "--etcd-initial-cluster=") || strings.HasPrefix(arg, "--etcd-endpoints=") || strings.HasPrefix(arg, "--replication-factor=") || strings.HasPrefix(arg, "--cluster-name=") {
			flags = append(flags, arg)
		}
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), built.path("nsqd"), flags...)
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its exit code is what counts
	return cmd.ProcessState.ExitCode(), out.String()
}
