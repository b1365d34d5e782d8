package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"

	"github.com/sirupsen/logrus"
	etcd "go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"

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
		return fmt.Errorf("etcd: TLS files: %w", err)
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

// serverTLS is the configuration of a port. Each handshake uses the current files. With explains, the handshake of a
// broker that is not admitted succeeds. The port then refuses its requests with a reason, which TLS cannot give.
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

// errOtherEtcd means that this version of etcd keeps its transports in other fields.
var errOtherEtcd = errors.New("etcd: the transports of this version of etcd are unknown")

// followFiles makes each further connection of the member to another one use the current files, and check that the
// other side is a broker. etcd itself reads the authority once, and has no setting for either. Reflection finds its
// transports, in fields that never change. http.Transport.RegisterProtocol changes the transports, which is allowed
// while requests run. Connections in the first milliseconds use the files as etcd read them at its start.
func (o Options) followFiles(server *etcd.EtcdServer) error {
	if o.identity == nil {
		return nil
	}
	transports, err := transportsOf(server)
	if err != nil {
		return err
	}
	for _, t := range transports {
		t.RegisterProtocol("https", o.following(t))
		t.CloseIdleConnections()
	}
	return nil
}

// transportsOf returns the transports of raft's streams, of single messages and snapshots, and of requests to other members.
func transportsOf(server *etcd.EtcdServer) (all []*http.Transport, err error) {
	defer func() {
		if p := recover(); p != nil { // reflection panics for a field that is missing
			err = fmt.Errorf("%w: %v", errOtherEtcd, p)
		}
	}()
	s := reflect.ValueOf(server).Elem()
	raft := pointer[rafthttp.Transport](s.FieldByName("r").FieldByName("transport"))
	r := reflect.ValueOf(raft).Elem()
	for _, field := range []reflect.Value{r.FieldByName("streamRt"), r.FieldByName("pipelineRt"), s.FieldByName("peerRt")} {
		all = append(all, pointer[http.Transport](field))
	}
	return all, nil
}

// pointer returns the *T in an interface that need not be exported.
func pointer[T any](in reflect.Value) *T {
	v := in.Elem()
	if v.Type() != reflect.TypeFor[*T]() {
		panic("a " + v.Type().String())
	}
	return (*T)(v.UnsafePointer())
}

// following returns a transport like t that obtains the current configuration for each connection.
func (o Options) following(t *http.Transport) *http.Transport {
	following := t.Clone()
	//lint:ignore SA1019 etcd sets it: it has the timeouts of streams
	dial := following.Dial
	following.TLSClientConfig = nil
	following.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		raw, err := dial(network, address)
		if err != nil {
			return nil, err
		}
		security := o.clientTLS()
		security.ServerName = host
		secure := tls.Client(raw, security)
		ctx, cancel := context.WithTimeout(ctx, firstBytes)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		return secure, nil
	}
	return following
}
