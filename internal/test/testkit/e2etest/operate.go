package e2etest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// Must runs nsqctl.
func (c *Cluster) Must(args ...string) {
	c.T.Helper()
	out, err := c.Nsqctl(args...)
	require.NoError(c.T, err, "nsqctl %v: %s", args, out)
}

// RunFrom makes all brokers that are started from now on processes of another binary, of a
// cluster whose binary is a link (layOutFrom). The first call is before the first start.
func (c *Cluster) RunFrom(nsqd string) {
	c.T.Helper()
	_ = os.Remove(c.nsqd) // there is none before the first call
	require.NoError(c.T, os.Symlink(nsqd, c.nsqd))
}

// Passing is a client that keeps no connection.
var Passing = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Ctl runs nsqctl with the addresses of all brokers.
func (c *Cluster) Ctl(args ...string) (stdout, stderr string, err error) {
	var out, problems strings.Builder
	cmd := exec.CommandContext(c.T.Context(), Built.Path("nsqctl"), append(args, c.Addresses()...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &problems, c.T.TempDir()
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// Addresses are the flags that name the brokers.
func (c *Cluster) Addresses() []string {
	var tcp, web []string
	for _, b := range c.Brokers {
		tcp, web = append(tcp, b.TCP), append(web, b.HTTP)
	}
	return []string{"--nsqd-tcp-address=" + strings.Join(tcp, ","), "--nsqd-http-address=" + strings.Join(web, ",")}
}

// Back notes that every broker is up again.
func (c *Cluster) Back() {
	for _, name := range Names(c) {
		c.Down.End(name)
	}
}

// StopLimit bounds a planned stop.
const StopLimit = 20 * time.Second

// Twin runs a broker under the name of another one until it ends, as after a copy of
// the configuration to another host.
func (c *Cluster) Twin(t *testing.T, of devcluster.Broker, embedded bool) (code int, said string) {
	t.Helper()
	host, port := "127.0.0.1", FreePorts(t, 1)
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
	cmd := exec.CommandContext(t.Context(), Built.Path("nsqd"), flags...)
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its exit code is what counts
	return cmd.ProcessState.ExitCode(), out.String()
}

// CreateWith makes a topic and its channel with one more argument.
func (c *Cluster) CreateWith(topic, channel, key, value string) {
	c.T.Helper()
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, key: {value}})
	c.Post(c.Brokers[0], "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
}
