package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/config"
)

// TLS is a server's TLS configuration. Its files can be reloaded while connections are served.
type TLS struct {
	o       config.ClientTLS
	current atomic.Pointer[tls.Config]
}

// LoadTLS reads the files. It accepts an expired certificate: clients judge that.
func LoadTLS(o config.ClientTLS) (*TLS, error) {
	t := &TLS{o: o}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the files again; new handshakes use them. After an error the previous files remain in use.
func (t *TLS) Reload() error {
	c, err := load(t.o)
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

func load(o config.ClientTLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("listen: load TLS certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}}
	if c.MinVersion, err = minVersion(o.TLSMinVersion); err != nil {
		return nil, err
	}
	switch o.TLSClientAuthPolicy {
	case "":
	case "require":
		c.ClientAuth = tls.RequireAnyClientCert
	case "require-verify":
		c.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		return nil, fmt.Errorf("listen: unknown TLS client auth policy %q", o.TLSClientAuthPolicy)
	}
	if o.TLSRootCAFile != "" {
		if c.ClientCAs, err = loadCAs(o.TLSRootCAFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// RequestTLS returns the configuration of the server's own requests. They trust the issuer of the
// clients' certificates.
func RequestTLS(o config.ClientTLS) (*tls.Config, error) {
	c := &tls.Config{}
	var err error
	if c.MinVersion, err = minVersion(o.TLSMinVersion); err != nil {
		return nil, err
	}
	if o.TLSRootCAFile != "" {
		c.RootCAs, err = loadCAs(o.TLSRootCAFile)
	}
	return c, err
}

func loadCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("listen: load TLS root CAs: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("listen: load TLS root CAs: no certificate in " + file)
	}
	return pool, nil
}

// TLSVersion returns the number of the TLS version that has this name in the settings, 0 if the name is unknown.
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
	return 0, fmt.Errorf("listen: unknown TLS version %q", name)
}
