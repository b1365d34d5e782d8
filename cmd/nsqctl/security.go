package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/api"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/edge"
)

const (
	// apiTimeout bounds one request to a broker's HTTP API.
	apiTimeout = 15 * time.Second
	// dialTimeout bounds a connection attempt, over HTTP and TCP.
	dialTimeout = 3 * time.Second
)

// security holds the settings for brokers with --tls-required, --tls-client-auth-policy or
// --auth-http-address. Its flags have the names of nsqd's.
type security struct {
	enabled           bool // TLS without one of the files
	rootCA, cert, key string
	insecure          bool
	secret            string // valid after load
	secretFile        string
	tokenFile         string
	token             string      // valid after load
	warnings          io.Writer   // nil: stderr
	config            *tls.Config // nil: plain text; valid after load
}

func (s *security) flags(f *pflag.FlagSet) {
	f.BoolVar(&s.enabled, "tls", false, "use TLS for TCP and HTTP connections to the brokers; each of the other --tls flags implies it")
	f.StringVar(&s.rootCA, "tls-root-ca-file", "", "certificate authorities of the brokers; empty: the system's")
	f.StringVar(&s.cert, "tls-cert", "", "client certificate, for brokers that require one")
	f.StringVar(&s.key, "tls-key", "", "private key of --tls-cert")
	f.BoolVar(&s.insecure, "tls-insecure-skip-verify", false, "accept any certificate of a broker")
	f.StringVar(&s.secret, "auth-secret", "", "the secret of --auth-secret-file itself, which every user of this machine can read in the list of processes")
	f.StringVar(&s.secretFile, "auth-secret-file", "", "file with the secret for brokers with an authorization server; empty: the token")
	f.StringVar(&s.tokenFile, "token-file", "", "file with the token of a user of the cluster (nsqctl user create); empty: $"+api.TokenVariable)
}

// loadToken reads the token from its file, or from the environment.
func (s *security) loadToken() error {
	s.token = strings.TrimSpace(os.Getenv(api.TokenVariable))
	if s.tokenFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.tokenFile)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if s.token = strings.TrimSpace(string(text)); s.token == "" {
		return fmt.Errorf("--token-file: %s is empty", s.tokenFile)
	}
	return nil
}

// load reads the files.
func (s *security) load() error {
	if err := s.loadToken(); err != nil {
		return err
	}
	if s.secret != "" {
		to := s.warnings
		if to == nil {
			to = os.Stderr
		}
		fmt.Fprintln(to, "nsqctl: warning: every user of this machine can read --auth-secret in the list of processes; use --auth-secret-file")
	}
	if s.secretFile != "" {
		text, err := os.ReadFile(s.secretFile)
		if err != nil {
			return fmt.Errorf("--auth-secret-file: %w", err)
		}
		if s.secret != "" {
			return errors.New("--auth-secret and --auth-secret-file exclude each other")
		}
		if s.secret = strings.TrimSpace(string(text)); s.secret == "" {
			return fmt.Errorf("--auth-secret-file: %s is empty", s.secretFile)
		}
	}
	if !s.enabled && s.rootCA == "" && s.cert == "" && s.key == "" && !s.insecure {
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

// client returns a client for HTTP, or HTTPS with TLS.
func (s *security) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.config
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &http.Client{
		Transport: bearer{transport, cmp.Or(s.token, s.secret)}, Timeout: apiTimeout,
		// A broker redirects to none but itself; the token goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// authSecret is what a TCP client sends with AUTH; "" = nothing.
func (s *security) authSecret() string { return cmp.Or(s.secret, s.token) }

// dialer returns the settings of connections over the NSQ protocol.
func (s *security) dialer() publisher.Dialer {
	return publisher.Dialer{TLS: s.config, Secret: s.authSecret(), Timeout: dialTimeout}
}

// bearer shows a token with each request.
type bearer struct {
	inner http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.inner.RoundTrip(r)
}

// nsq returns the common configuration of every client of the NSQ protocol.
func (s *security) nsq() *nsq.Config {
	c := nsq.NewConfig()
	c.UserAgent = "nsqctl/" + edge.ReadBuild().Version
	c.TlsV1, c.TlsConfig = s.config != nil, s.config
	c.AuthSecret = s.authSecret()
	return c
}
