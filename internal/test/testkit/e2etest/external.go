package e2etest

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// External starts brokers on an etcd outside, as a cluster of their own in it.
func External(t *testing.T, endpoint string, brokers int) *Cluster {
	t.Helper()
	dir := directory(t)
	d, err := devcluster.New(devcluster.Config{
		Nodes: brokers, DataDir: dir, BasePort: FreePorts(t, brokers), NSQD: Built.Path("nsqd"), EtcdEndpoints: endpoint,
		Args: []string{fmt.Sprintf("--cluster-name=of-%d", brokers)}, Tied: true,
	})
	require.NoError(t, err)
	c := &Cluster{Cluster: d, T: t, Dir: dir, HTTP: httpClient()}
	t.Cleanup(c.end)
	require.NoError(t, c.StartAll())
	c.WaitReady()
	return c
}

// Etcd is a process of `nsqctl etcd`.
type Etcd struct {
	t        *testing.T
	dir      string
	base     int
	Endpoint string
	Cmd      *exec.Cmd
}

// ExternalEtcd runs `nsqctl etcd` for the length of a test.
func ExternalEtcd(t *testing.T) *Etcd {
	t.Helper()
	e := &Etcd{t: t, dir: t.TempDir(), base: FreePorts(t, 1)}
	e.Endpoint = fmt.Sprintf("http://127.0.0.1:%d", e.base+4)
	e.Start()
	t.Cleanup(func() {
		_ = e.Cmd.Process.Signal(syscall.SIGTERM)
		_ = e.Cmd.Wait()
	})
	return e
}

// Start starts it, again too, and waits until it is ready.
func (e *Etcd) Start() {
	e.t.Helper()
	e.Cmd = exec.Command(Built.Path("nsqctl"), "etcd", "--data-dir="+e.dir, fmt.Sprintf("--client-address=127.0.0.1:%d", e.base+4),
		fmt.Sprintf("--peer-address=127.0.0.1:%d", e.base+5))
	e.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := e.Cmd.StdoutPipe()
	require.NoError(e.t, err)
	require.NoError(e.t, e.Cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(e.t, err)
	require.True(e.t, strings.HasPrefix(line, "ready"), line)
}

// Kill ends it with SIGKILL.
func (e *Etcd) Kill() {
	require.NoError(e.t, e.Cmd.Process.Kill())
	_ = e.Cmd.Wait() // "signal: killed"
}
