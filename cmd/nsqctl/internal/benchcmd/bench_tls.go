package benchcmd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
)

// startWithTLS starts a second cluster, which the workloads reach over TLS. Its brokers
// talk to each other in plain text, so that the ratio is the cost of the clients' TLS.
func (o benchOptions) startWithTLS(ctx context.Context, t *cli.Target) (*subject, func(), error) {
	dir, err := os.MkdirTemp("", "nsqctl-bench-tls-")
	if err != nil {
		return nil, nil, err
	}
	removeDir := func() { _ = os.RemoveAll(dir) }
	config, flags, err := certify(dir)
	if err != nil {
		removeDir()
		return nil, nil, fmt.Errorf("certificate of the second cluster: %w", err)
	}
	o.basePort += peerPorts
	o.brokers = append(flags, o.brokers...)
	stop, err := o.startCluster(ctx)
	if err != nil {
		removeDir()
		return nil, nil, err
	}
	with := *t
	s, err := newSubject(&with, o)
	if err != nil {
		stop()
		removeDir()
		return nil, nil, err
	}
	with.Security.TLSConfig = config // of TCP connections; the HTTP port is asked in plain text
	s.label = "cluster over TLS"
	return s, func() { stop(); removeDir() }, nil
}

// certify makes a certificate of 127.0.0.1 for a day, and returns the configuration of its
// clients and the flags of its brokers. It is its own authority.
func certify(dir string) (clients *tls.Config, flags []string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "nsqctl bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600),
	)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, []string{"--tls-cert=" + certFile, "--tls-key=" + keyFile}, err
}
