package attack

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

// The uses of a certificate.
var (
	serverAndClient = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	clientOnly      = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
)

// authority issues certificates with names, unlike testkit/certs: a broker's name stands in
// its certificate, and an attacker has one of the same authority with another name.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca", serverAndClient)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.pem and NAME.key, for 127.0.0.1 and the given DNS names.
func (a *authority) issue(name string, use []x509.ExtKeyUsage, dns ...string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: dns, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: use,
	}
	parent, signer := a.cert, a.key
	if parent == nil { // the authority's own
		template.KeyUsage |= x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	if a.cert == nil {
		a.cert, err = x509.ParseCertificate(der)
		require.NoError(a.t, err)
		a.key = key
	}
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	write := func(file, kind string, b []byte) {
		require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
	}
	write(name+".pem", "CERTIFICATE", der)
	write(name+".key", "EC PRIVATE KEY", secret)
}

// client trusts the authority, and shows a certificate if it is named.
func (a *authority) client(name string) *tls.Config {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
		require.NoError(a.t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}
