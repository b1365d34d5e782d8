package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// askMetaTimeout bounds one request to the metadata.
	askMetaTimeout = 2 * time.Second
	// askMetaEvery is the pause between requests without an answer.
	askMetaEvery = 500 * time.Millisecond
)

// openMeta connects to the external etcd, or starts the embedded member and waits until its
// cluster has a leader.
func (p *process) openMeta(ctx context.Context) error {
	c := metadata.Config{Endpoints: p.o.EtcdEndpoints, Username: p.o.EtcdUsername}
	var err error
	if p.o.EmbedsEtcd() {
		if err = p.startEtcd(ctx); err != nil {
			return err
		}
		c.Endpoints = []string{p.etcd.Local()}
	} else if c.TLS, err = externalTLS(p.o, p.log); err != nil {
		return err
	}
	p.metaConfig = c
	p.standby.step("connecting to the metadata")
	for {
		password, err := secret(p.o.EtcdPassword, p.o.EtcdPasswordFile) // read for each attempt: the file may be at fault
		if err != nil {
			return err
		}
		c.Password = string(password)
		if p.meta, err = metadata.DialEtcd(ctx, c); err == nil || !answered(err) || ctx.Err() != nil {
			return err
		}
		p.standby.say(p.metaMissing(ctx, err))
		concurrency.Sleep(ctx, askMetaEvery)
	}
}

// answered reports whether the etcd itself refused a log-in: a fault of the settings does not
// go away. Any other failure is one of the connection.
func answered(err error) bool {
	_, known := errors.AsType[rpctypes.EtcdError](err)
	_, remote := status.FromError(err)
	return known || remote || errors.Is(err, context.DeadlineExceeded)
}

// awaitMeta returns when the metadata answers.
func (p *process) awaitMeta(ctx context.Context) error {
	for {
		err := p.askMeta(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, metadata.ErrWentBack) {
			return err
		}
		p.standby.say(p.metaMissing(ctx, err))
		concurrency.Sleep(ctx, askMetaEvery)
	}
}

// askMeta reads this broker's key in the metadata, which need not exist.
func (p *process) askMeta(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, askMetaTimeout)
	defer cancel()
	_, err := p.meta.Get(ask, metadata.Keys{Cluster: p.o.ClusterName}.Node(ident.Node(p.o.NodeName)))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	return err
}

// metaMissing returns a sentence why the metadata does not answer; err is the error of a
// request of this broker.
func (p *process) metaMissing(ctx context.Context, err error) string {
	if p.etcd != nil {
		return p.etcd.Missing(ctx)
	}
	why := "waiting for the metadata: " + withoutOwnPorts(err)
	if path := p.metaConfig.Explain(ctx); path != nil {
		why += "; " + withoutOwnPorts(path)
	}
	return why
}

// withoutOwnPorts returns an error as one line, without the local ports of connections: the
// same fault has the same text.
func withoutOwnPorts(err error) string {
	return ownPort.ReplaceAllString(strings.ReplaceAll(err.Error(), "\n", "; "), "")
}

var ownPort = regexp.MustCompile(`[0-9.]+:[0-9]+->|\[[0-9a-f:]+\]:[0-9]+->`)

// warnOfCertificate logs why others will refuse a certificate: they close the connection
// without a reason, and this broker would only wait for them.
func (p *process) warnOfCertificate(certFile, host string) {
	if certFile == "" {
		return
	}
	if err := judgeCertificate(certFile, host, time.Now()); err != nil {
		p.log.WithError(err).WithField("file", certFile).Warn("other brokers will refuse this one's certificate")
	}
}

// judgeCertificate returns nil if a certificate is valid now for this host.
func judgeCertificate(certFile, host string, now time.Time) error {
	c, err := readCertificate(certFile)
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

// secret returns a token or password from the environment or from the file; nil without
// either. White space around it is removed.
func secret(given config.Secret, file string) ([]byte, error) {
	if file == "" && given == "" {
		return nil, nil
	}
	text, from := string(given), "the secret in the environment"
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text, from = string(b), file
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, errors.New(from + " is empty")
	}
	return []byte(text), nil
}

// readCertificate reads the first certificate of a file.
func readCertificate(file string) (*x509.Certificate, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the file has no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
