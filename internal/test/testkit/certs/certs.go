// Package certs issues certificates for tests whose connections are on loopback. No
// product package imports it. It revokes no certificate, and renews one only on request.
//
// # Invariants
//
//  1. A peer that trusts an Authority accepts each of its certificates, for a server at
//     127.0.0.1 and for a client. It accepts no certificate of another Authority.
package certs

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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority is a certificate authority. It writes NAME.pem and NAME.key into a temporary
// directory of the test; ca.pem is its own certificate. Only the test's goroutine may use it.
type Authority struct {
	t    testing.TB
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// validFor is how long a certificate is valid.
const validFor = time.Hour

// New makes an authority with its own certificate.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.Issue("ca")
	return a
}

// Issue makes a certificate and replaces an earlier one of that name. Its DNS names are this
// name and the others: it belongs to the brokers with those names.
func (a *Authority) Issue(name string, others ...string) {
	a.t.Helper()
	a.IssueUntil(time.Now().Add(validFor), name, others...)
}

// IssueUntil is Issue with the end of the certificate's validity.
func (a *Authority) IssueUntil(end time.Time, name string, others ...string) {
	a.t.Helper()
	a.issue(name, end, append([]string{name}, others...), x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

// IssueClient makes a certificate that is valid for clients alone.
func (a *Authority) IssueClient(name string, dnsNames ...string) {
	a.t.Helper()
	a.issue(name, time.Now().Add(validFor), dnsNames, x509.ExtKeyUsageClientAuth)
}

func (a *Authority) issue(name string, end time.Time, dnsNames []string, usages ...x509.ExtKeyUsage) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: dnsNames, IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: usages,
	}
	if a.cert == nil { // the first certificate is the authority's own
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	if a.cert == template {
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(a.t, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", secret)
}

func (a *Authority) write(name, kind string, der []byte) {
	a.t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(a.t, os.WriteFile(a.File(name), text, 0o600))
}

// File returns the path of a file of the authority.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Client returns a configuration that trusts the authority and presents the named
// certificate; none if the name is empty.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if name != "" {
		c.Certificates = []tls.Certificate{a.pair(name)}
	}
	return c
}

// Mutual returns a configuration for both ends of a connection: each end presents the named
// certificate and requires one of the authority from its peer.
func (a *Authority) Mutual(name string) *tls.Config {
	a.t.Helper()
	c := a.Client(name)
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	return c
}

func (a *Authority) pair(name string) tls.Certificate {
	a.t.Helper()
	cert, err := tls.LoadX509KeyPair(a.File(name+".pem"), a.File(name+".key"))
	require.NoError(a.t, err)
	return cert
}
