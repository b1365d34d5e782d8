package rpc

import (
	"errors"
	"net"
)

// reason is an error's text without this broker's own address, whose port differs with
// each attempt although the reason is the same.
func reason(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err.Error()
	}
	same := *op
	same.Source = nil
	return same.Error()
}
