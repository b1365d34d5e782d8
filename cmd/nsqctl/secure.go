package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	nsq "github.com/nsqio/go-nsq"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// security is what brokers with --tls-required, --tls-client-auth-policy or
// --auth-http-address ask for. The names are those of nsqd's own flags.
type security struct {
	wanted            bool // TLS, without any of the files
	rootCA, cert, key string
	insecure          bool
	secret            string
	config            *tls.Config // nil: plain text; valid after load
}

func (s *security) flags(f *pflag.FlagSet) {
	f.BoolVar(&s.wanted, "tls", false, "speak TLS with the brokers, over TCP and HTTP; each of the other --tls flags implies it")
	f.StringVar(&s.rootCA, "tls-root-ca-file", "", "authorities of the brokers' certificates; empty: the system's")
	f.StringVar(&s.cert, "tls-cert", "", "certificate to show to brokers that demand one")
	f.StringVar(&s.key, "tls-key", "", "its private key")
	f.BoolVar(&s.insecure, "tls-insecure-skip-verify", false, "take any broker's certificate")
	f.StringVar(&s.secret, "auth-secret", "", "secret for brokers that ask an authorization server (TCP alone)")
}

// load reads the files.
func (s *security) load() error {
	if !s.wanted && s.rootCA == "" && s.cert == "" && s.key == "" && !s.insecure {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.insecure}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if s.rootCA != "" {
		pem, err := os.ReadFile(s.rootCA)
		if err != nil {
			return fmt.Errorf("--tls-root-ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--tls-root-ca-file: no certificate in %s", s.rootCA)
		}
	}
	s.config = c
	return nil
}

// client speaks HTTP, or HTTPS.
func (s *security) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.config
	return &http.Client{Transport: transport, Timeout: apiTimeout}
}

// nsq is where every client of the NSQ protocol begins.
func (s *security) nsq() *nsq.Config {
	c := nsq.NewConfig()
	c.UserAgent = "nsqctl/" + edge.Version
	c.TlsV1, c.TlsConfig = s.config != nil, s.config
	c.AuthSecret = s.secret
	return c
}
