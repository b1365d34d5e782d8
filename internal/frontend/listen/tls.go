package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// TLSOptions are the --tls-* flags.
type TLSOptions struct {
	CertFile, KeyFile string
	RootCAFile        string // of client certificates and the queried services; "" = the system's
	// ClientAuthPolicy is "", "require" (any certificate) or "require-verify".
	ClientAuthPolicy string
	// MinVersion is tls1.0, tls1.1, tls1.2 or tls1.3; "" = tls1.2.
	MinVersion string
}

// TLS is a server's TLS configuration. Its files can be reloaded while connections are served.
type TLS struct {
	opts    TLSOptions
	current atomic.Pointer[tls.Config]
}

// LoadTLS reads the files. It accepts an expired certificate: clients judge that.
func LoadTLS(o TLSOptions) (*TLS, error) {
	t := &TLS{opts: o}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the files again; new handshakes use them. After an error the previous files
// remain in use.
func (t *TLS) Reload() error {
	c, err := t.opts.load()
	if err == nil {
		t.current.Store(c)
	}
	return err
}

// Config returns the configuration for listeners and upgrades; it follows Reload.
func (t *TLS) Config() *tls.Config {
	c := t.current.Load().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current.Load(), nil }
	return c
}

func (o TLSOptions) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("server: load TLS certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}}
	if c.MinVersion, err = minVersion(o.MinVersion); err != nil {
		return nil, err
	}
	switch o.ClientAuthPolicy {
	case "":
	case "require":
		c.ClientAuth = tls.RequireAnyClientCert
	case "require-verify":
		c.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		return nil, fmt.Errorf("server: unknown TLS client auth policy %q", o.ClientAuthPolicy)
	}
	if o.RootCAFile != "" {
		if c.ClientCAs, err = loadCAs(o.RootCAFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Client returns the configuration of the server's own requests. They trust the issuer of the
// clients' certificates.
func (o TLSOptions) Client() (*tls.Config, error) {
	c := &tls.Config{}
	var err error
	if c.MinVersion, err = minVersion(o.MinVersion); err != nil {
		return nil, err
	}
	if o.RootCAFile != "" {
		c.RootCAs, err = loadCAs(o.RootCAFile)
	}
	return c, err
}

func loadCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("server: load TLS root CAs: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("server: load TLS root CAs: no certificate in " + file)
	}
	return pool, nil
}

// TLSVersion returns the number of a version by its name in the settings, 0 if the name is
// unknown.
func TLSVersion(name string) uint16 {
	v, _ := minVersion(name)
	return v
}

func minVersion(name string) (uint16, error) {
	switch name {
	case "tls1.0":
		return tls.VersionTLS10, nil
	case "tls1.1":
		return tls.VersionTLS11, nil
	case "", "tls1.2":
		return tls.VersionTLS12, nil
	case "tls1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("server: unknown TLS version %q", name)
}
