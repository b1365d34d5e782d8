package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestClusterBehindTLSAndToken: brokers that talk by mutual TLS, with a token
// too, form a cluster; one with another token, or with a certificate of another
// authority, is not let in, and is when it has the right one.
func TestClusterBehindTLSAndToken(t *testing.T) {
	processes(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	ca := certs.New(t)
	ca.Issue("broker", "n1", "n2", "n3")
	c := start(t, 3, "--cluster-token-file="+token, "--rpc-tls-cert="+ca.File("broker.pem"),
		"--rpc-tls-key="+ca.File("broker.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	c.create(topic, channel, 1)
	require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "first"))

	c.kill("n3")
	require.NoError(t, os.WriteFile(token, []byte("another"), 0o600))
	require.NoError(t, c.Start("n3"))
	c.until("n3 registered", func() bool { return c.broker("n3").Incarnation != 0 })
	pause(2 * time.Second) // what must not happen
	require.False(t, c.broker("n3").Alive, "a broker with another token is connected")
	require.NoError(t, c.Kill("n3"))

	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	c.restart("n3")
	c.whole(topic)
	require.Equal(t, history.OK, putOnce(c.Brokers[2], topic, "second"))
	c.requireStranger(t, "n1")
}

// requireStranger: a certificate of another authority opens neither the port of
// the brokers nor that of the metadata; nsqd refuses to start with it.
func (c *cluster) requireStranger(t *testing.T, name string) {
	t.Helper()
	b, err := c.Broker(name)
	require.NoError(t, err)
	ca := certs.New(t)
	ca.Issue("stranger")
	cmd := exec.Command(built.path("nsqd"), "--node-name=stranger", "--data-path="+t.TempDir(), "--tcp-address=127.0.0.1:0",
		"--http-address=127.0.0.1:0", "--rpc-address=127.0.0.1:0", "--etcd-endpoints=https://"+b.Etcd,
		"--etcd-tls-cert="+ca.File("stranger.pem"), "--etcd-tls-key="+ca.File("stranger.key"), "--etcd-tls-ca="+ca.File("ca.pem"))
	require.NoError(t, cmd.Start())
	pause(2 * time.Second) // what must not happen
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Zero(t, c.broker("stranger").Incarnation, "a stranger is in the metadata")
}

// broker is one line of /v1/cluster as the first broker shows it.
func (c *cluster) broker(name string) edge.BrokerView {
	var v edge.ClusterView
	if c.get(c.Brokers[0], "/v1/cluster", &v) != nil {
		return edge.BrokerView{}
	}
	for _, b := range v.Brokers {
		if b.Name == ident.Node(name) {
			return b
		}
	}
	return edge.BrokerView{}
}

// TestExposedPortsNeedSecurity: a broker with a port on the network starts only with TLS
// (brokers' port: or a token), or with the flag that allows plain text.
func TestExposedPortsNeedSecurity(t *testing.T) {
	processes(t)
	for _, flag := range []string{"--rpc-address=0.0.0.0:0", "--etcd-client-address=0.0.0.0:1", "--etcd-peer-address=[::]:1"} {
		out, err := exec.Command(built.path("nsqd"), "--data-path="+t.TempDir(), flag).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, flag)
		require.Equal(t, 1, exit.ExitCode(), "%s: %s", flag, out)
		require.Contains(t, string(out), "--insecure", flag)
	}
}
