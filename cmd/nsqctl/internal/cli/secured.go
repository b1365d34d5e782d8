package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
)

// Secured prevents a consumer from using ports without TLS if TLS is required: go-nsq would
// continue in clear text.
type Secured struct {
	Security *Security
	Out      io.Writer
}

// Check returns nil if a broker may be consumed from.
func (s Secured) Check(ctx context.Context, address string) error {
	if s.Security.TLSConfig == nil {
		return nil
	}
	return s.Security.Dialer().Check(ctx, address)
}

// Filter implements nsq.DiscoveryFilter for the brokers that a lookup API lists.
func (s Secured) Filter(addresses []string) []string {
	return slices.DeleteFunc(addresses, func(address string) bool {
		err := s.Check(context.Background(), address) // go-nsq passes no context
		if errors.Is(err, publisher.ErrNoTLS) {
			fmt.Fprintf(s.Out, "%s: %v\n", address, err)
		}
		return errors.Is(err, publisher.ErrNoTLS)
	})
}
