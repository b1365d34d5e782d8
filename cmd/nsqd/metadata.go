package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// askMetaTimeout bounds the first question to an external etcd.
const askMetaTimeout = 2 * time.Second

// openMeta connects to the external etcd, or starts the embedded member and
// waits until its cluster has a leader.
func (p *process) openMeta(ctx context.Context) error {
	c := meta.Config{Endpoints: p.o.EtcdEndpoints, Username: p.o.EtcdUsername}
	var err error
	if p.o.EmbedsEtcd() {
		if err = p.startEtcd(ctx); err != nil {
			return err
		}
		c.Endpoints = p.etcd.Endpoints()
		c.TLS, err = loadTLS(p.o.RPCTLSCert, p.o.RPCTLSKey, p.o.RPCTLSCA)
	} else {
		c.TLS, err = loadTLS(p.o.EtcdTLSCert, p.o.EtcdTLSKey, p.o.EtcdTLSCA)
	}
	if err != nil {
		return err
	}
	if p.o.EtcdPasswordFile != "" {
		secret, err := readSecret(p.o.EtcdPasswordFile)
		if err != nil {
			return err
		}
		c.Password = string(secret)
	}
	for {
		p.meta, err = meta.DialEtcd(ctx, c)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
		p.waitsForMeta(ctx, c, err)
	}
	if err != nil || p.o.EmbedsEtcd() {
		return err
	}
	// One question, to tell the operator at once what is wrong.
	ask, cancel := context.WithTimeout(ctx, askMetaTimeout)
	defer cancel()
	_, err = p.meta.Get(ask, meta.Keys{Cluster: p.o.ClusterName}.Node(ident.Node(p.o.NodeName)))
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		p.waitsForMeta(ctx, c, err)
	}
	return nil
}

// waitsForMeta says why nothing happens: the etcd may start later than the broker.
func (p *process) waitsForMeta(ctx context.Context, c meta.Config, err error) {
	p.log.WithError(errors.Join(err, c.Explain(ctx))).Warn("the metadata cannot be reached, waiting for it")
}

// loadTLS makes a configuration for both ends of a connection; nil without
// files.
func loadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	if certFile == "" && caFile == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if certFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("load certificate: %w", err)
		}
		var last atomic.Pointer[tls.Certificate]
		last.Store(&cert)
		// Read anew with each handshake, as the embedded etcd does: connections
		// between brokers are few. Files that are of no use change nothing.
		renewed := func() *tls.Certificate {
			if cert, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
				last.Store(&cert)
			}
			return last.Load()
		}
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return renewed(), nil }
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return renewed(), nil }
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("load authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("load authority %s: no certificate in it", caFile)
		}
		c.RootCAs, c.ClientCAs, c.ClientAuth = pool, pool, tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// warnOfCertificate says what others will refuse a certificate for: they hang up, and
// this broker would only wait for them.
func (p *process) warnOfCertificate(certFile, host string) {
	if certFile == "" {
		return
	}
	if err := judgeCertificate(certFile, host, time.Now()); err != nil {
		p.log.WithError(err).WithField("file", certFile).Warn("other brokers will refuse this one's certificate")
	}
}

// judgeCertificate is nil if a certificate holds now, for whom dials this host.
func judgeCertificate(certFile, host string, now time.Time) error {
	content, err := os.ReadFile(certFile)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return errors.New("there is none in the file")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return err
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s", c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("it has expired on %s", c.NotAfter.Format(time.RFC3339))
	}
	return c.VerifyHostname(host)
}

// readSecret reads a token or password; white space around it does not count.
func readSecret(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	secret := strings.TrimSpace(string(b))
	if secret == "" {
		return nil, errors.New(name + " is empty")
	}
	return []byte(secret), nil
}
