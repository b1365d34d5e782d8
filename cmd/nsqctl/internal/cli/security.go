package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

const (
	// apiTimeout bounds one request to a broker's HTTP API.
	apiTimeout = 15 * time.Second
	// dialTimeout bounds a connection attempt, over HTTP and TCP.
	dialTimeout = 3 * time.Second
	// greetTimeout bounds the check of a port.
	greetTimeout = 12 * time.Second
)

// Security holds the settings for brokers with --tls-required, --tls-client-auth-policy or
// --auth-http-address. Its flags have the names of nsqd's.
type Security struct {
	Enabled           bool // TLS without one of the files
	RootCA, Cert, Key string
	Insecure          bool
	SecretFile        string
	TokenFile         string
	Secret, Token     string      // valid after load
	TLSConfig         *tls.Config // nil: plain text; valid after load
	warnings          io.Writer   // nil: stderr
}

// TLSFlags defines the flags of TLS with a prefix, for connections over HTTP, TCP or both to the brokers of one cluster.
func (s *Security) TLSFlags(f *pflag.FlagSet, prefix, over, whose string) {
	f.BoolVar(&s.Enabled, prefix+"tls", false, "use TLS for "+over+" connections to "+whose+"; each of the other --"+prefix+"tls flags implies it")
	f.StringVar(&s.RootCA, prefix+"tls-root-ca-file", "", "certificate authorities of "+whose+"; empty: the system's")
	f.StringVar(&s.Cert, prefix+"tls-cert", "", "client certificate, for brokers that require one")
	f.StringVar(&s.Key, prefix+"tls-key", "", "private key of --"+prefix+"tls-cert")
	f.BoolVar(&s.Insecure, prefix+"tls-insecure-skip-verify", false, "accept any certificate of "+whose)
}

func (s *Security) flags(f *pflag.FlagSet) {
	s.TLSFlags(f, "", "TCP and HTTP", "the brokers")
	f.StringVar(&s.Secret, "auth-secret", "", "the secret of --auth-secret-file itself, which every user of this machine can read in the list of processes")
	f.StringVar(&s.SecretFile, "auth-secret-file", "", "file with the secret for brokers with an authorization server; empty: the token")
	f.StringVar(&s.TokenFile, "token-file", "", "file with the token of a user of the cluster (nsqctl user create); empty: $"+brokerapi.TokenVariable)
}

func (s *Security) load() error {
	s.Token = strings.TrimSpace(os.Getenv(brokerapi.TokenVariable))
	if s.Secret != "" {
		to := s.warnings
		if to == nil {
			to = os.Stderr
		}
		fmt.Fprintln(to, "nsqctl: warning: every user of this machine can read --auth-secret in the list of processes; use --auth-secret-file")
		if s.SecretFile != "" {
			return errors.New("--auth-secret and --auth-secret-file exclude each other")
		}
	}
	return s.LoadFiles()
}

// LoadFiles reads what the flags name: the token, the secret and the certificates.
func (s *Security) LoadFiles() (err error) {
	for _, x := range []struct {
		flag, file string
		to         *string
	}{{"--token-file", s.TokenFile, &s.Token}, {"--auth-secret-file", s.SecretFile, &s.Secret}} {
		if x.file == "" {
			continue
		}
		text, err := os.ReadFile(x.file)
		if err != nil {
			return fmt.Errorf("%s: %w", x.flag, err)
		}
		if *x.to = strings.TrimSpace(string(text)); *x.to == "" {
			return fmt.Errorf("%s: %s is empty", x.flag, x.file)
		}
	}
	if !s.Enabled && s.RootCA == "" && s.Cert == "" && s.Key == "" && !s.Insecure {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.Insecure}
	if s.Cert != "" || s.Key != "" {
		c.Certificates = make([]tls.Certificate, 1)
		if c.Certificates[0], err = tls.LoadX509KeyPair(s.Cert, s.Key); err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
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
		Transport: bearer{transport, cmp.Or(s.Token, s.Secret)}, Timeout: apiTimeout,
		// A broker redirects to none but itself; the token goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
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

// AuthSecret is what a TCP client sends with AUTH; "": nothing.
func (s *Security) AuthSecret() string { return cmp.Or(s.Secret, s.Token) }

func userAgent() string { return "nsqctl/" + api.ReadBuild().Version }

// Dialer returns the settings of the publisher's connections.
func (s *Security) Dialer() nsqclient.Dialer {
	host, _ := os.Hostname() // "" is a valid value
	return nsqclient.Dialer{
		TLS: s.TLSConfig, Secret: s.AuthSecret(), Timeout: dialTimeout,
		Identify: map[string]any{"client_id": host, "hostname": host, "user_agent": userAgent()},
	}
}

// NSQ returns the common configuration of all consumers. A consumer must CheckTLS first.
func (s *Security) NSQ() *nsq.Config {
	c := nsq.NewConfig()
	c.UserAgent = userAgent()
	c.TlsV1, c.TlsConfig = s.TLSConfig != nil, s.TLSConfig
	c.AuthSecret = s.AuthSecret()
	return c
}

// CheckTLS refuses a port without TLS if TLS is required: go-nsq would continue in clear text.
func (s *Security) CheckTLS(ctx context.Context, address string) error {
	if s.TLSConfig == nil {
		return nil
	}
	c, err := s.Dialer().Dial(ctx, address, greetTimeout)
	if err != nil {
		return brokerapi.Reason(err)
	}
	return c.Close()
}

// TLSFilter is an nsq.DiscoveryFilter that leaves out the ports without TLS if TLS is required, and reports them to out.
func (s *Security) TLSFilter(out io.Writer) nsq.DiscoveryFilter { return tlsFilter{s, out} }

type tlsFilter struct {
	*Security
	out io.Writer
}

// Filter implements nsq.DiscoveryFilter.
func (f tlsFilter) Filter(addresses []string) []string {
	return slices.DeleteFunc(addresses, func(address string) bool {
		err := f.CheckTLS(context.Background(), address) // go-nsq passes no context
		if errors.Is(err, nsqclient.ErrNoTLS) {
			fmt.Fprintf(f.out, "%s: %v\n", address, err)
		}
		return errors.Is(err, nsqclient.ErrNoTLS)
	})
}
