package metadata

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// renewed are gRPC credentials of a client whose certificate and authority change at run time: each connection uses the
// present configuration. The embedded credentials have the configuration of the start.
type renewed struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.config()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r renewed) Clone() credentials.TransportCredentials { return r }
