package security

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestClusterBehindTLSAndToken: brokers that talk by mutual TLS, with a token
// too, form a cluster; one with another token, or with a certificate of another
// authority, is not let in, and is when it has the right one.
func TestClusterBehindTLSAndToken(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	ca := certs.New(t)
	ca.Issue("broker", "n1", "n2", "n3")
	c := e2etest.Start(t, 3, "--cluster-token-file="+token, "--rpc-tls-cert="+ca.File("broker.pem"),
		"--rpc-tls-key="+ca.File("broker.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	c.Create(e2etest.Topic, e2etest.Channel, 1)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "first"))

	c.Crash("n3")
	require.NoError(t, os.WriteFile(token, []byte("another"), 0o600))
	require.NoError(t, c.Start("n3"))
	c.Until("n3 registered", func() bool { return c.BrokerView("n3").Incarnation != 0 })
	e2etest.Pause(2 * time.Second) // what must not happen
	require.False(t, c.BrokerView("n3").Alive, "a broker with another token is connected")
	require.NoError(t, c.Kill("n3"))

	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	c.Restart("n3")
	c.Whole(e2etest.Topic)
	require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[2], e2etest.Topic, "second"))
	requireStranger(c, t, "n1")
}

// requireStranger: a certificate of another authority opens neither the port of
// the brokers nor that of the metadata; nsqd refuses to start with it.
func requireStranger(c *e2etest.Cluster, t *testing.T, name string) {
	t.Helper()
	b, err := c.Broker(name)
	require.NoError(t, err)
	ca := certs.New(t)
	ca.Issue("stranger")
	cmd := exec.Command(e2etest.Built.Path("nsqd"), "--node-name=stranger", "--data-path="+t.TempDir(), "--tcp-address=127.0.0.1:0",
		"--http-address=127.0.0.1:0", "--rpc-address=127.0.0.1:0", "--etcd-endpoints=https://"+b.Etcd,
		"--etcd-tls-cert="+ca.File("stranger.pem"), "--etcd-tls-key="+ca.File("stranger.key"), "--etcd-tls-ca="+ca.File("ca.pem"))
	require.NoError(t, cmd.Start())
	e2etest.Pause(2 * time.Second) // what must not happen
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Zero(t, c.BrokerView("stranger").Incarnation, "a stranger is in the metadata")
}

// TestExposedPortsNeedSecurity: a broker with a port on the network starts only with TLS
// (brokers' port: or a token), or with the flag that allows plain text.
func TestExposedPortsNeedSecurity(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	for _, flag := range []string{"--rpc-address=0.0.0.0:0", "--etcd-client-address=0.0.0.0:1", "--etcd-peer-address=[::]:1"} {
		out, err := exec.Command(e2etest.Built.Path("nsqd"), "--data-path="+t.TempDir(), flag).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, flag)
		require.Equal(t, 1, exit.ExitCode(), "%s: %s", flag, out)
		require.Contains(t, string(out), "--insecure", flag)
	}
}
