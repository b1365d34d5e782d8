package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// errNoCertificate refuses the other side of a connection.
var errNoCertificate = errors.New("the other side shows no certificate")

// loadIdentity reads the TLS files, once.
func (o *Options) loadIdentity() (err error) {
	if o.identity != nil || o.TLS == (TLS{}) {
		return nil
	}
	o.identity, err = peertls.Load(peertls.Files(o.TLS), o.Names, o.Log)
	if err != nil {
		return fmt.Errorf("etcdserver: TLS files: %w", err)
	}
	return nil
}

// clientTLS is the configuration of the next connection to another member; nil: plain text. The other side must be a broker,
// at the dialled address.
func (o Options) clientTLS() *tls.Config {
	if o.identity == nil {
		return nil
	}
	c := o.identity.Config().Clone()
	c.VerifyConnection = o.verifyBroker
	return c
}

// serverTLS is the configuration of a port. Each handshake uses the present files. With explains, the handshake of a broker
// that is not admitted succeeds: the port refuses its requests, with a reason that TLS cannot give.
func (o Options) serverTLS(refusals *peertls.Refusals, port string, explains bool, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c := o.identity.Config().Clone()
			c.NextProtos = protocols
			c.VerifyConnection = func(state tls.ConnectionState) error {
				err := o.verifyBroker(state)
				if err != nil {
					refusals.Warn(err.Error(), logrus.Fields{
						logrus.ErrorKey: err, "remote": hello.Conn.RemoteAddr(), "port": "etcd " + port,
					}, "connection refused")
				}
				if _, is := errors.AsType[*peertls.NotAdmitted](err); is && explains {
					return nil
				}
				return err
			}
			return c, nil
		},
	}
}

func (o Options) verifyBroker(state tls.ConnectionState) error {
	switch {
	case o.Names == nil:
		return nil
	case len(state.PeerCertificates) == 0:
		return errNoCertificate
	}
	return o.identity.CheckAny(state.PeerCertificates[0])
}
