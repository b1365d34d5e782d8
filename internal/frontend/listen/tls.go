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
	c, err := RequestTLS(o)
	if err != nil {
		return nil, err
	}
	c.RootCAs, c.ClientCAs = nil, c.RootCAs
	cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("listen: load TLS certificate: %w", err)
	}
	c.Certificates = []tls.Certificate{cert}
	switch o.TLSClientAuthPolicy {
	case "":
	case "require":
		c.ClientAuth = tls.RequireAnyClientCert
	case "require-verify":
		c.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		return nil, fmt.Errorf("listen: unknown TLS client auth policy %q", o.TLSClientAuthPolicy)
	}
	return c, nil
}

// RequestTLS returns the configuration of the server's own requests. They trust the issuer of the clients' certificates.
func RequestTLS(o config.ClientTLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: TLSVersion(o.TLSMinVersion)}
	if c.MinVersion == 0 {
		return nil, fmt.Errorf("listen: unknown TLS version %q", o.TLSMinVersion)
	}
	if o.TLSRootCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(o.TLSRootCAFile)
	if err != nil {
		return nil, fmt.Errorf("listen: load TLS root CAs: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("listen: load TLS root CAs: no certificate in " + o.TLSRootCAFile)
	}
	return c, nil
}

var tlsVersions = map[string]uint16{
	"tls1.0": tls.VersionTLS10, "tls1.1": tls.VersionTLS11, "": tls.VersionTLS12, "tls1.2": tls.VersionTLS12, "tls1.3": tls.VersionTLS13,
}

// TLSVersion returns the number of the TLS version that has this name in the settings, 0 if the name is unknown.
func TLSVersion(name string) uint16 { return tlsVersions[name] }
