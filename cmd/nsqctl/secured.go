package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
)

// secured prevents a consumer from using ports without TLS if TLS is required: go-nsq would
// continue in clear text.
type secured struct {
	security *security
	out      io.Writer
}

// check returns nil if a broker may be consumed from.
func (s secured) check(ctx context.Context, address string) error {
	if s.security.config == nil {
		return nil
	}
	return s.security.dialer().Check(ctx, address)
}

// Filter implements nsq.DiscoveryFilter for the brokers that a lookup API lists.
func (s secured) Filter(addresses []string) []string {
	return slices.DeleteFunc(addresses, func(address string) bool {
		err := s.check(context.Background(), address) // go-nsq passes no context
		if errors.Is(err, publisher.ErrNoTLS) {
			fmt.Fprintf(s.out, "%s: %v\n", address, err)
		}
		return errors.Is(err, publisher.ErrNoTLS)
	})
}
