//go:build !wasip1

package metadata

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// renewed are gRPC's credentials of a client whose certificate and authority change while it
// runs: each connection uses the configuration of its time.
type renewed struct{ config func() *tls.Config }

var errNoServer = errors.New("meta: the credentials are those of a client")

// ClientHandshake implements credentials.TransportCredentials.
func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.config()).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (r renewed) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errNoServer
}

// Info implements credentials.TransportCredentials.
func (r renewed) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.config()).Info() }

// Clone implements credentials.TransportCredentials.
func (r renewed) Clone() credentials.TransportCredentials { return r }

// OverrideServerName implements credentials.TransportCredentials, whose caller is to set the
// authority instead.
func (r renewed) OverrideServerName(string) error { return errors.ErrUnsupported }
