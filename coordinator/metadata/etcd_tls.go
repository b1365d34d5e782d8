package metadata

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// explainTimeout bounds the question to one endpoint.
const explainTimeout = time.Second

// Explain returns the reasons why the endpoints cannot be reached, nil if at least one can. The error of the client itself is
// only that its time ran out.
func (c Config) Explain(ctx context.Context) error {
	var reasons []error
	var security *tls.Config
	if c.TLS != nil {
		security = c.TLS()
	}
	for _, endpoint := range c.Endpoints {
		err := reach(ctx, endpoint, security)
		if err == nil {
			return nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", endpoint, err))
	}
	return errors.Join(reasons...)
}

// reach connects and waits for the server's first byte or a timeout: a server refuses a broker's certificate after the
// handshake.
func reach(ctx context.Context, endpoint string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	scheme, address, named := strings.Cut(endpoint, "://")
	if !named {
		scheme, address = "http", endpoint
	}
	dial := new(net.Dialer).DialContext
	if scheme == "https" {
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

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
