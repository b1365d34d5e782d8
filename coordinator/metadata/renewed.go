package metadata

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// renewed are gRPC credentials of a client whose certificate and authority change at run time: each connection uses the
// present configuration.
type renewed struct{ config func() *tls.Config }

var errNoServer = errors.New("meta: the credentials are those of a client")

func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.config()).ClientHandshake(ctx, authority, conn)
}

func (r renewed) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errNoServer
}

func (r renewed) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.config()).Info() }

func (r renewed) Clone() credentials.TransportCredentials { return r }

// OverrideServerName is not needed: the caller sets the authority.
func (r renewed) OverrideServerName(string) error { return errors.ErrUnsupported }
