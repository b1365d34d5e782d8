package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{t: t, dir: dir}
	a.key, a.cert = a.sign("ca", nil)
	return a
}

// sign writes name.pem and name.key; without an authority it signs itself.
func (a *authority) sign(name string, by *authority) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", secret)
	return key, cert
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(a.t, os.WriteFile(filepath.Join(a.dir, name), text, 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// client trusts the authority and shows the named certificate, if any.
func (a *authority) client(name string) *tls.Config {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
		require.NoError(a.t, err)
		c.Certificates = []tls.Certificate{cert}
	}
	return c
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, stranger := newAuthority(t, dir), newAuthority(t, t.TempDir())
	ca.sign("server", ca)
	ca.sign("client", ca)
	stranger.sign("client", stranger)
	b := startSecured(t, "--tls-cert="+ca.file("server.pem"), "--tls-key="+ca.file("server.key"), "--tls-root-ca-file="+ca.file("ca.pem"),
		"--tls-client-auth-policy=require-verify", "--tls-min-version=tls1.2")

	// The TCP port: only IDENTIFY before TLS, and then a certificate of ours.
	c := b.dial()
	c.send("SUB orders ch\n")
	c.expect("E_INVALID cannot SUB in current state (TLS required)")
	c = b.dial()
	require.Equal(t, true, c.identify(map[string]any{"tls_v1": true, "snappy": false})["tls_v1"])
	require.NoError(t, c.upgrade(ca.client("client")))
	c.expect("OK")
	c.put("orders", "secretly")
	for name, config := range map[string]*tls.Config{"none": ca.client(""), "a stranger's": withCert(ca.client(""), stranger.client("client"))} {
		c := b.dial()
		c.identify(map[string]any{"tls_v1": true})
		if c.upgrade(config) == nil { // TLS 1.3 refuses after the client's side is done
			require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(limit)))
			_, err := c.in.ReadByte()
			require.Error(t, err, name)
		}
	}
	old := ca.client("client")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	c = b.dial()
	c.identify(map[string]any{"tls_v1": true})
	require.Error(t, c.upgrade(old), "--tls-min-version")

	// The HTTP port only points to the HTTPS one, which wants a certificate too.
	status, text := b.get("/stats")
	require.Equal(t, 403, status)
	require.Contains(t, text, `"TLS_REQUIRED"`)
	status, text = b.secure(ca.client("client"), "/stats?format=json")
	require.Equal(t, 200, status)
	require.Contains(t, text, `"topic_name":"orders"`)
	for _, path := range []string{"/ui", "/ui/data", "/metrics", "/v1/cluster", "/no/such/path"} {
		status, _ = b.get(path)
		require.Equal(t, 403, status, path)
	}
	status, text = b.secure(ca.client("client"), "/ui/data")
	require.Equal(t, 200, status)
	require.Contains(t, text, `"topic_name":"orders"`)
	require.Contains(t, text, `"silent":[]`)
	_, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: ca.client("")}}).Get("https://" + b.address(2) + "/ping")
	require.Error(t, err)

	// SIGHUP takes a new certificate, and keeps the old one if the new is none.
	before := b.serial(ca)
	require.NoError(t, os.WriteFile(ca.file("server.pem"), []byte("nothing"), 0o600))
	b.signal(syscall.SIGHUP)
	b.eventually("complains", func() bool { return strings.Contains(b.logged(), "certificates were not reloaded") })
	require.Equal(t, before, b.serial(ca))
	ca.sign("server", ca)
	b.signal(syscall.SIGHUP)
	b.eventually("shows the new certificate", func() bool { return b.serial(ca) != before })
}

func TestTLSExceptHTTP(t *testing.T) {
	ca := newAuthority(t, t.TempDir())
	ca.sign("server", ca)
	b := start(t, "--tls-cert="+ca.file("server.pem"), "--tls-key="+ca.file("server.key"), "--tls-required=tcp-https")
	status, _ := b.post("/pub?topic=orders", "x")
	require.Equal(t, 200, status)
	c := b.dial()
	c.send("NOP\n")
	c.expect("E_INVALID cannot NOP in current state (TLS required)")
	status, _ = b.secure(ca.client(""), "/ping")
	require.Equal(t, 200, status)
}

func TestTLSFilesMissing(t *testing.T) {
	b := prepare(t)
	b.run("--tls-cert=/nowhere/cert.pem", "--tls-key=/nowhere/key.pem")
	require.Equal(t, 1, b.wait())
	require.Contains(t, b.logged(), "load TLS certificate: open /nowhere/cert.pem")
}

// startSecured is start for a broker whose HTTP port refuses.
func startSecured(t *testing.T, flags ...string) *broker {
	t.Helper()
	b := prepare(t)
	b.run(flags...)
	b.eventually("is ready", func() bool { return strings.Contains(b.logged(), "READY") })
	return b
}

func withCert(c, from *tls.Config) *tls.Config {
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &from.Certificates[0], nil }
	return c
}

// secure asks the HTTPS port.
func (b *broker) secure(config *tls.Config, path string) (int, string) {
	b.t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer c.CloseIdleConnections()
	return ask(b.t, c, http.MethodGet, "https://"+b.address(2)+path, "")
}

// serial is that of the certificate that the broker shows.
func (b *broker) serial(ca *authority) string {
	b.t.Helper()
	conn, err := tls.Dial("tcp", b.address(2), ca.client("client"))
	require.NoError(b.t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}
