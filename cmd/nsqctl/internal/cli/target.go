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
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// Target holds the addresses of the brokers; any broker of the cluster can answer.
type Target struct {
	brokerapi.Client // valid while a command runs
	TCP              []string
	Output           string // text or json; valid while a command runs
	Wide, yaml       bool   // wide: more columns; yaml: JSON is printed as YAML
	Security         Security
	// AddressFlag: the command line itself has --nsqd-http-address, not only the environment or a profile.
	AddressFlag bool
}

// The default ports of a broker, and the directory of the clusters of `make run` and `nsqctl dev`.
const (
	tcpAddress   = "127.0.0.1:4150"
	HTTPAddress  = "127.0.0.1:4151"
	httpsAddress = "127.0.0.1:4152"
	DevDirectory = "./data"
)

func (t *Target) prepare(cmd *cobra.Command) error {
	t.AddressFlag = cmd.Flags().Changed("nsqd-http-address")
	if err := defaults(cmd); err != nil {
		return err
	}
	if err := t.chooseOutput(); err != nil {
		return err
	}
	if err := t.Security.load(); err != nil {
		return err
	}
	for flag, addresses := range map[string][]string{"nsqd-tcp-address": t.TCP, "nsqd-http-address": t.Addresses} {
		for _, a := range addresses {
			if !config.IsHostPort(a) { // such as a URL
				return Usage("--%s=%s: must be host:port, such as %s", flag, a, HTTPAddress)
			}
		}
	}
	t.HTTP, t.TLS = t.Security.HTTPClient(), t.Security.TLSConfig != nil
	if !cmd.Flags().Changed("nsqd-http-address") && t.TLS {
		t.Addresses = []string{httpsAddress}
	}
	if cmd.Name() != "bench" { // a measurement uses exactly the given brokers
		t.preferDev(cmd)
	}
	return nil
}

// preferDev puts the brokers of a cluster on this machine before the default addresses, so that any running one of them
// is found. The default addresses are tried last, because the cluster may be stopped.
func (t *Target) preferDev(cmd *cobra.Command) {
	c, err := devcluster.Load(DevDirectory)
	if err != nil {
		return // there is no file, or it does not describe a cluster
	}
	var tcp, web []string
	for _, b := range c.Brokers {
		tcp = append(tcp, b.TCP)
		web = append(web, t.Address(api.BrokerView{HTTPAddress: b.HTTP, HTTPSAddress: b.HTTPS}))
	}
	last := func(found, addresses []string) []string {
		return append(found, slices.DeleteFunc(addresses, func(a string) bool { return slices.Contains(found, a) })...)
	}
	if !cmd.Flags().Changed("nsqd-tcp-address") {
		t.TCP = last(tcp, t.TCP)
	}
	if !cmd.Flags().Changed("nsqd-http-address") {
		t.Addresses = last(web, t.Addresses)
	}
}

// CreateUser asks a broker to create a user; address "" is any broker. For the first administrator it reads the broker's
// secret, if that is a file of this machine that the caller may read, and no token is given.
func (t *Target) CreateUser(ctx context.Context, address string, query url.Values) ([]byte, error) {
	const path = "/v1/user/create"
	ask := t.Client
	if address != "" {
		ask.Addresses = []string{address}
	}
	body, err := ask.CallAny(ctx, http.MethodPost, path, query)
	at, file := brokerapi.FirstAdministrator(err)
	if file == "" || t.Security.Token != "" || t.Security.Secret != "" {
		return body, err
	}
	if !ours(ctx, at) {
		return nil, fmt.Errorf("%w\nrun nsqctl on that broker's machine, or copy the file and give it with --token-file", err)
	}
	secret, reading := readFirst(file)
	if reading != nil {
		return nil, fmt.Errorf("%w\nnsqctl cannot read it: %w; run nsqctl as root or as the broker's user, or give a copy of the file with --token-file", err, reading)
	}
	return t.Send(ctx, at, path, query, http.Header{"Authorization": {"Bearer " + secret}}, nil)
}

// readFirst reads the secret for the first administrator. It reads no other file: the broker names it.
func readFirst(file string) (string, error) {
	if filepath.Base(file) != access.FirstFile {
		return "", fmt.Errorf("%s is not a file of that name: %s", file, access.FirstFile)
	}
	text, err := os.ReadFile(file)
	secret, ok := access.ParseFirst(text)
	if err == nil && !ok {
		err = errors.New(file + " has no such secret")
	}
	return secret, err
}

// ours reports whether an address belongs to this machine: the secret is sent nowhere else.
func ours(ctx context.Context, address string) bool {
	host, _, _ := net.SplitHostPort(address) // "" has no address
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	own, unknown := net.InterfaceAddrs()
	if err != nil || unknown != nil || len(ips) == 0 {
		return false
	}
	return !slices.ContainsFunc(ips, func(ip net.IPAddr) bool {
		return !ip.IP.IsLoopback() && !slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		})
	})
}

const (
	apiTimeout   = 15 * time.Second // bounds one request to a broker's HTTP API
	dialTimeout  = 3 * time.Second  // bounds a connection attempt, over HTTP and TCP
	greetTimeout = 12 * time.Second // bounds the check of a port
)

// Security holds the settings for brokers with --tls-required, --tls-client-auth-policy or
// --auth-http-address. Its flags have the names of nsqd's.
type Security struct {
	Enabled           bool // TLS is on even if no file is given
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
		fmt.Fprintln(cmp.Or(s.warnings, io.Writer(os.Stderr)), "nsqctl: warning: every user of this machine can read --auth-secret in the list of processes; use --auth-secret-file")
		if s.SecretFile != "" {
			return errors.New("--auth-secret and --auth-secret-file exclude each other")
		}
	}
	return s.LoadFiles()
}

// LoadFiles reads the files that the flags name: the token, the secret and the certificates.
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
		// A broker redirects only to itself; the token is sent nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearer shows a token with each request.
type bearer struct {
	inner http.RoundTripper
	token string
}

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

// NSQ returns the common configuration of all consumers. Callers must call CheckTLS before they connect a consumer.
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
