package rpc

import (
	"errors"
	"net"
)

// reason is an error's text without our own address, whose port differs with each
// attempt: what is complained of is the same.
func reason(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err.Error()
	}
	same := *op
	same.Source = nil
	return same.Error()
}
