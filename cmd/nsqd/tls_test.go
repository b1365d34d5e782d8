package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, stranger := certs.New(t), certs.New(t)
	ca.Issue("server")
	ca.Issue("client")
	stranger.Issue("client")
	b := startSecured(t, "--tls-cert="+ca.File("server.pem"), "--tls-key="+ca.File("server.key"), "--tls-root-ca-file="+ca.File("ca.pem"),
		"--tls-client-auth-policy=require-verify", "--tls-min-version=tls1.2", "--lookupd-http-address=127.0.0.1:0")

	// The TCP port: only IDENTIFY before TLS, and then a certificate of the authority.
	c := b.dial()
	c.send("SUB orders ch\n")
	c.expect("E_INVALID cannot SUB in current state (TLS required)")
	c = b.dial()
	require.Equal(t, true, c.identify(map[string]any{"tls_v1": true, "snappy": false})["tls_v1"])
	require.NoError(t, c.upgrade(ca.Client("client")))
	c.expect("OK")
	c.put("orders", "secretly")
	for name, config := range map[string]*tls.Config{"none": ca.Client(""), "a stranger's": withCert(ca.Client(""), stranger.Client("client"))} {
		c := b.dial()
		c.identify(map[string]any{"tls_v1": true})
		if c.upgrade(config) == nil { // TLS 1.3 refuses after the client's handshake is complete
			require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(limit)))
			_, err := c.in.ReadByte()
			require.Error(t, err, name)
		}
	}
	old := ca.Client("client")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	c = b.dial()
	c.identify(map[string]any{"tls_v1": true})
	require.Error(t, c.upgrade(old), "--tls-min-version")

	// The HTTP port only points to the HTTPS one, which requires a certificate too.
	status, text := b.get("/stats")
	require.Equal(t, 403, status)
	require.Contains(t, text, `"TLS_REQUIRED"`)
	// The lookup port obeys --tls-required, too.
	status, text = ask(t, b.http, http.MethodGet, "http://"+b.lookup()+"/topics", "")
	require.Equal(t, 403, status)
	require.Contains(t, text, `"TLS_REQUIRED"`)
	require.Contains(t, text, fmt.Sprintf(`"https_port": %d`, b.base+2))
	status, text = b.secure(ca.Client("client"), "/stats?format=json")
	require.Equal(t, 200, status)
	require.Contains(t, text, `"topic_name":"orders"`)
	for _, path := range []string{"/ui", "/v1/console/topics", "/metrics", "/v1/cluster", "/no/such/path"} {
		status, _ = b.get(path)
		require.Equal(t, 403, status, path)
	}
	status, text = b.secure(ca.Client("client"), "/v1/console/topics")
	require.Equal(t, 200, status)
	require.Contains(t, text, `"topic":"orders"`)
	require.Contains(t, text, `"unreachable":[]`)
	_, text = b.secure(ca.Client("client"), "/v1/cluster")
	require.Contains(t, text, `"https_address":"`+b.address(2)+`"`)
	_, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client("")}}).Get("https://" + b.address(2) + "/ping")
	require.Error(t, err)

	// SIGHUP loads a new certificate, and keeps the old one if the new one is invalid.
	before := b.serial(ca)
	require.NoError(t, os.WriteFile(ca.File("server.pem"), []byte("nothing"), 0o600))
	b.signal(syscall.SIGHUP)
	b.eventually("complains", func() bool { return strings.Contains(b.logged(), "cannot reload the certificates") })
	require.Equal(t, before, b.serial(ca))
	ca.Issue("server")
	b.signal(syscall.SIGHUP)
	b.eventually("shows the new certificate", func() bool { return b.serial(ca) != before })
}

func TestTLSFilesMissing(t *testing.T) {
	b := prepare(t)
	b.run("--tls-cert=/nowhere/cert.pem", "--tls-key=/nowhere/key.pem")
	require.Equal(t, 1, b.wait())
	require.Contains(t, b.logged(), "load TLS certificate: open /nowhere/cert.pem")
}

// startSecured is start for a broker whose HTTP port refuses requests.
func startSecured(t *testing.T, flags ...string) *broker {
	t.Helper()
	b := prepare(t)
	b.run(flags...)
	b.ready()
	return b
}

func withCert(c, from *tls.Config) *tls.Config {
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &from.Certificates[0], nil }
	return c
}

// secure sends a request to the HTTPS port.
func (b *broker) secure(config *tls.Config, path string) (int, string) {
	b.t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer c.CloseIdleConnections()
	return ask(b.t, c, http.MethodGet, "https://"+b.address(2)+path, "")
}

// serial returns the serial number of the broker's certificate.
func (b *broker) serial(ca *certs.Authority) string {
	b.t.Helper()
	conn, err := tls.Dial("tcp", b.address(2), ca.Client("client"))
	require.NoError(b.t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestCertificateThatOthersRefuse: a broker whose certificate has expired, or names another
// host, logs that. No other broker answers it, and otherwise it would only wait.
func TestCertificateThatOthersRefuse(t *testing.T) {
	ca := certs.New(t)
	ca.Issue("n1")
	file, now := ca.File("n1.pem"), time.Now()
	require.NoError(t, judgeCertificate(file, "127.0.0.1", now))
	require.ErrorContains(t, judgeCertificate(file, "127.0.0.1", now.AddDate(10, 0, 0)), "expired")
	require.ErrorContains(t, judgeCertificate(file, "127.0.0.1", time.Time{}.AddDate(-1, 0, 0)), "not valid before")
	require.ErrorContains(t, judgeCertificate(file, "10.0.0.1", now), "10.0.0.1")
	require.ErrorIs(t, judgeCertificate(ca.File("n2.pem"), "127.0.0.1", now), os.ErrNotExist)

	b := prepare(t)
	b.run("--node-name=n1", "--broadcast-address=localhost", fmt.Sprintf("--rpc-address=0.0.0.0:%d", b.base+3),
		"--rpc-tls-cert="+file, "--rpc-tls-key="+ca.File("n1.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	b.says("other brokers will refuse this one's certificate")
}

// TestCertificateWithoutTheBrokersName: a broker whose certificate the others would refuse does
// not start, and explains what the certificate must have.
func TestCertificateWithoutTheBrokersName(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	ca.Issue("n2")
	ca.IssueClient("n1", "n1")
	ca.Issue("n1.brokers.example")
	files := func(name string) []string {
		return []string{"--node-name=n1", "--rpc-tls-cert=" + ca.File(name+".pem"), "--rpc-tls-key=" + ca.File(name+".key"), "--rpc-tls-ca=" + ca.File("ca.pem")}
	}
	for name, want := range map[string]string{"n2": "subjectAltName=DNS:n1 ", "n1": "lacks the extended key usage serverAuth"} {
		b := prepare(t)
		b.run(files(name)...)
		require.Equal(t, 1, b.wait())
		require.Contains(t, b.logged(), want)
		code, _, stderr := refused(t, append(files(name), "--check-config")...)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, want)
	}
	startSecured(t, append(files("n1.brokers.example"), "--rpc-tls-name=*.brokers.example")...)
}

// TestPeerAuthorityIsRenewed: a broker trusts a new authority at its internal ports without a
// restart, and without a signal. SIGHUP also loads a new certificate, which expires like any other.
func TestPeerAuthorityIsRenewed(t *testing.T) {
	t.Parallel()
	ca, next := certs.New(t), certs.New(t)
	ca.Issue("n1")
	next.Issue("n1")
	b := startSecured(t, "--node-name=n1", "--rpc-tls-cert="+ca.File("n1.pem"), "--rpc-tls-key="+ca.File("n1.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	serial := func() string {
		conn, err := tls.Dial("tcp", b.address(3), ca.Mutual("n1"))
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	ca.Issue("n1")
	b.signal(syscall.SIGHUP)
	b.eventually("shows the new certificate to other brokers", func() bool { return serial() != before })

	trusts := func(port int) bool {
		conn, err := tls.Dial("tcp", b.address(port), next.Client("n1"))
		if err != nil {
			return false
		}
		defer conn.Close()
		// TLS 1.3 refuses a certificate after the client's handshake is complete. A broker that
		// trusts it ends the connection when the client does.
		_ = conn.CloseWrite() // it may be refused already
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
		_, err = io.Copy(io.Discard, conn)
		return err == nil
	}
	ports := []int{3, 4, 5}
	for _, port := range ports {
		require.False(t, trusts(port))
	}
	for _, file := range []string{"n1.key", "n1.pem", "ca.pem"} {
		content, err := os.ReadFile(next.File(file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(ca.File(file), content, 0o600))
	}
	for _, port := range ports {
		b.eventually("trusts the new authority", func() bool { return trusts(port) })
	}
	require.Zero(t, b.metric("lockstep_rpc_handshakes"))
}

// TestBrokersThatJoinAreAllowed: SIGHUP reads --rpc-tls-allow again, so that the running brokers admit a further one.
func TestBrokersThatJoinAreAllowed(t *testing.T) {
	ca := certs.New(t)
	ca.Issue("n1")
	ca.Issue("n4")
	file := filepath.Join(t.TempDir(), "nsqd.toml")
	require.NoError(t, os.WriteFile(file, []byte("rpc_tls_allow = []"), 0o600))
	log := logrus.New()
	log.SetOutput(io.Discard)
	p := &process{log: log, args: []string{"--node-name=n1", "--insecure-clients", "--insecure-http", "--config=" + file, "--etcd-initial-cluster=n1=http://127.0.0.1:1,n2=http://127.0.0.1:2"}}
	o, _, err := config.Load(source(p.args))
	require.NoError(t, err)
	_, p.peers.names, err = loadPeerIdentity(o, log)
	require.NoError(t, err)
	n4, err := tls.LoadX509KeyPair(ca.File("n4.pem"), ca.File("n4.key"))
	require.NoError(t, err)
	require.ErrorContains(t, p.peers.names.CheckAny(n4.Leaf), `["n1" "n2"]`)
	require.NoError(t, os.WriteFile(file, []byte(`rpc_tls_allow = ["n4"]`), 0o600))
	p.reload()
	require.NoError(t, p.peers.names.CheckAny(n4.Leaf))
}

// lookup returns the address of a lookup port that the system chose.
func (b *broker) lookup() string {
	b.t.Helper()
	at := regexp.MustCompile(`lookup=(\S+)`).FindStringSubmatch(b.logged())
	require.NotNil(b.t, at)
	return at[1]
}

// TestCertificateWithoutItsKey: the broker says so while it still runs with the files that it read before, and its metric
// has no end of validity.
func TestCertificateWithoutItsKey(t *testing.T) {
	authority := certs.New(t)
	authority.Issue("client")
	authority.Issue("rpc")
	authority.Issue("other")
	var o config.Options
	o.TLSCert, o.TLSKey = authority.File("client.pem"), authority.File("client.key")
	o.RPCTLSCert, o.RPCTLSKey = authority.File("rpc.pem"), authority.File("rpc.key")
	ends, faults := certificates(o)
	require.Len(t, ends, 2)
	require.Empty(t, faults)
	require.NoError(t, os.Remove(o.RPCTLSKey))
	o.TLSKey = authority.File("other.key")
	ends, faults = certificates(o)
	require.Len(t, ends, 2)
	require.Equal(t, map[string]string{
		"rpc":    "its private key is missing: the file of --rpc-tls-key cannot be read",
		"client": "the files of --tls-cert and --tls-key do not belong together",
	}, faults)
	require.NoError(t, os.Remove(o.RPCTLSCert))
	ends, faults = certificates(o)
	require.Len(t, ends, 1)
	require.Equal(t, "the file of --rpc-tls-cert cannot be read", faults["rpc"])
}
