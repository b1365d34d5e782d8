package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/e2e/history"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestClusterBehindTLSAndToken: brokers that talk by mutual TLS, with a token
// too, form a cluster; one with another token, or with a certificate of another
// authority, is not let in, and is when it has the right one.
func TestClusterBehindTLSAndToken(t *testing.T) {
	processes(t)
	files := t.TempDir()
	token := filepath.Join(files, "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	newAuthority(t).issue(t, files)
	c := start(t, 3, "--cluster-token-file="+token, "--rpc-tls-cert="+filepath.Join(files, "cert.pem"),
		"--rpc-tls-key="+filepath.Join(files, "key.pem"), "--rpc-tls-ca="+filepath.Join(files, "ca.pem"))
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
	files := t.TempDir()
	newAuthority(t).issue(t, files)
	cmd := exec.Command(built.path("nsqd"), "--node-name=stranger", "--data-path="+t.TempDir(), "--tcp-address=127.0.0.1:0",
		"--http-address=127.0.0.1:0", "--rpc-address=127.0.0.1:0", "--etcd-endpoints=https://"+b.Etcd,
		"--etcd-tls-cert="+filepath.Join(files, "cert.pem"), "--etcd-tls-key="+filepath.Join(files, "key.pem"),
		"--etcd-tls-ca="+filepath.Join(files, "ca.pem"))
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

// TestExposedPortsNeedSecurity: what is reachable from the network starts only
// with TLS (brokers' port: or a token), or when it is told that this is meant.
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

// authority signs certificates for brokers on loopback.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := certificate(1)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{key: key, cert: cert}
}

// issue writes ca.pem, cert.pem and key.pem.
func (a *authority) issue(t *testing.T, dir string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := certificate(2)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw}, "cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

func certificate(serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}
