//go:build !linux

package rpc

import "net"

// tune does nothing: TCP_NOTSENT_LOWAT is of Linux.
func tune(net.Conn) {}
