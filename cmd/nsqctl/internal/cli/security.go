package cli

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

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api"
)

const (
	// APITimeout bounds one request to a broker's HTTP API.
	APITimeout = 15 * time.Second
	// dialTimeout bounds a connection attempt, over HTTP and TCP.
	dialTimeout = 3 * time.Second
)

// Security holds the settings for brokers with --tls-required, --tls-client-auth-policy or
// --auth-http-address. Its flags have the names of nsqd's.
type Security struct {
	Enabled           bool // TLS without one of the files
	RootCA, Cert, Key string
	Insecure          bool
	Secret            string // valid after load
	SecretFile        string
	TokenFile         string
	Token             string      // valid after load
	warnings          io.Writer   // nil: stderr
	TLSConfig         *tls.Config // nil: plain text; valid after load
}

func (s *Security) flags(f *pflag.FlagSet) {
	f.BoolVar(&s.Enabled, "tls", false, "use TLS for TCP and HTTP connections to the brokers; each of the other --tls flags implies it")
	f.StringVar(&s.RootCA, "tls-root-ca-file", "", "certificate authorities of the brokers; empty: the system's")
	f.StringVar(&s.Cert, "tls-cert", "", "client certificate, for brokers that require one")
	f.StringVar(&s.Key, "tls-key", "", "private key of --tls-cert")
	f.BoolVar(&s.Insecure, "tls-insecure-skip-verify", false, "accept any certificate of a broker")
	f.StringVar(&s.Secret, "auth-secret", "", "the secret of --auth-secret-file itself, which every user of this machine can read in the list of processes")
	f.StringVar(&s.SecretFile, "auth-secret-file", "", "file with the secret for brokers with an authorization server; empty: the token")
	f.StringVar(&s.TokenFile, "token-file", "", "file with the token of a user of the cluster (nsqctl user create); empty: $"+brokerapi.TokenVariable)
}

// LoadToken reads the token from its file, or from the environment.
func (s *Security) LoadToken() error {
	s.Token = strings.TrimSpace(os.Getenv(brokerapi.TokenVariable))
	if s.TokenFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if s.Token = strings.TrimSpace(string(text)); s.Token == "" {
		return fmt.Errorf("--token-file: %s is empty", s.TokenFile)
	}
	return nil
}

// load reads the token and the certificates.
func (s *Security) load() error {
	if err := s.LoadToken(); err != nil {
		return err
	}
	if err := s.LoadSecret(); err != nil {
		return err
	}
	return s.LoadTLS()
}

// LoadSecret reads the secret from its file.
func (s *Security) LoadSecret() error {
	if s.Secret != "" {
		to := s.warnings
		if to == nil {
			to = os.Stderr
		}
		fmt.Fprintln(to, "nsqctl: warning: every user of this machine can read --auth-secret in the list of processes; use --auth-secret-file")
	}
	if s.SecretFile != "" {
		text, err := os.ReadFile(s.SecretFile)
		if err != nil {
			return fmt.Errorf("--auth-secret-file: %w", err)
		}
		if s.Secret != "" {
			return errors.New("--auth-secret and --auth-secret-file exclude each other")
		}
		if s.Secret = strings.TrimSpace(string(text)); s.Secret == "" {
			return fmt.Errorf("--auth-secret-file: %s is empty", s.SecretFile)
		}
	}
	return nil
}

// LoadTLS reads the certificates.
func (s *Security) LoadTLS() error {
	if !s.Enabled && s.RootCA == "" && s.Cert == "" && s.Key == "" && !s.Insecure {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.Insecure}
	if s.Cert != "" || s.Key != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if s.RootCA != "" {
		pem, err := os.ReadFile(s.RootCA)
		if err != nil {
			return fmt.Errorf("--tls-root-ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--tls-root-ca-file: no certificate in %s", s.RootCA)
		}
	}
	s.TLSConfig = c
	return nil
}

// HTTPClient returns a client for HTTP, or HTTPS with TLS.
func (s *Security) HTTPClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.TLSConfig
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &http.Client{
		Transport: bearer{transport, cmp.Or(s.Token, s.Secret)}, Timeout: APITimeout,
		// A broker redirects to none but itself; the token goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// AuthSecret is what a TCP client sends with AUTH; "" = nothing.
func (s *Security) AuthSecret() string { return cmp.Or(s.Secret, s.Token) }

// Dialer returns the settings of connections over the NSQ protocol.
func (s *Security) Dialer() publisher.Dialer {
	return publisher.Dialer{TLS: s.TLSConfig, Secret: s.AuthSecret(), Timeout: dialTimeout}
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

// NSQ returns the common configuration of every client of the NSQ protocol.
func (s *Security) NSQ() *nsq.Config {
	c := nsq.NewConfig()
	c.UserAgent = "nsqctl/" + api.ReadBuild().Version
	c.TlsV1, c.TlsConfig = s.TLSConfig != nil, s.TLSConfig
	c.AuthSecret = s.AuthSecret()
	return c
}
