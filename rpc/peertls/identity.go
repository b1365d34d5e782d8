package peertls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// readEvery is the shortest time between two reads of the files, so that a flood of handshakes does not cause a flood
// of reads.
const readEvery = 250 * time.Millisecond

// Files name a certificate with its key, and the authority of the other side. Cert and Key are used together; without
// CA the other side is verified against the system's authorities.
type Files struct{ Cert, Key, CA string }

// Identity is a certificate, and the authority of the other side's certificate. It follows changes of the files.
type Identity struct {
	files Files
	names *Names
	log   logrus.FieldLogger

	mu struct {
		sync.Mutex
		contents [3][]byte // the files as last read, usable or not
		config   *tls.Config
		read     time.Time
		failed   bool // the contents as last read could not be used
	}
}

// Load reads the files; nil without files. With names nil, Check and CheckAny accept every certificate
// of the authority. log may be nil.
func Load(files Files, names *Names, log logrus.FieldLogger) (*Identity, error) {
	if files == (Files{}) {
		return nil, nil
	}
	if log == nil {
		log = &logrus.Logger{Out: io.Discard}
	}
	i := &Identity{files: files, names: names, log: log}
	contents, err := files.read()
	if err != nil {
		return nil, err
	}
	if i.mu.config, err = files.config(contents); err != nil {
		return nil, err
	}
	i.mu.contents, i.mu.read = contents, time.Now()
	return i, nil
}

// Config returns the configuration for the next connection, for either end. Callers must clone it before they change
// it.
func (i *Identity) Config() *tls.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.mu.read) >= readEvery {
		i.refreshLocked()
	}
	return i.mu.config
}

func (i *Identity) refreshLocked() {
	i.mu.read = time.Now()
	contents, err := i.files.read()
	if err == nil && slices.EqualFunc(contents[:], i.mu.contents[:], bytes.Equal) {
		return
	}
	var config *tls.Config
	if err == nil {
		i.mu.contents = contents
		config, err = i.files.config(contents)
	}
	switch {
	case err == nil:
		i.mu.config, i.mu.failed = config, false
		i.log.WithField("file", i.files.Cert).Info("the certificate or the authority for connections between brokers has changed: new connections use it")
	case !i.mu.failed:
		i.mu.failed = true
		i.log.WithError(err).Error("cannot use the changed certificate, key or authority for connections between brokers: the earlier ones remain in use")
	}
}

// Check returns ErrName unless the certificate belongs to the node.
func (i *Identity) Check(cert *x509.Certificate, node string) error {
	if i.names == nil {
		return nil
	}
	return i.names.Check(cert, node)
}

// CheckAny returns ErrName unless the certificate belongs to a broker.
func (i *Identity) CheckAny(cert *x509.Certificate) error {
	if i.names == nil {
		return nil
	}
	return i.names.CheckAny(cert)
}

// Leaf returns the certificate in use, or nil.
func (i *Identity) Leaf() *x509.Certificate {
	c := i.Config()
	if len(c.Certificates) == 0 {
		return nil
	}
	return c.Certificates[0].Leaf
}

func (f Files) read() (contents [3][]byte, err error) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		if contents[i], err = os.ReadFile(name); err != nil {
			return contents, err
		}
	}
	return contents, nil
}

func (f Files) config(contents [3][]byte) (*tls.Config, error) {
	// Session tickets are disabled, so that each connection is verified against the current authority.
	c := &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("load certificate %s: %w", f.Cert, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[2]) {
			return nil, fmt.Errorf("load authority %s: %w", f.CA, errors.New("no certificate in it"))
		}
		c.RootCAs, c.ClientCAs, c.ClientAuth = pool, pool, tls.RequireAndVerifyClientCert
	}
	return c, nil
}
