//go:build !linux

package rpc

import "net"

// tune does nothing, because TCP_NOTSENT_LOWAT exists only on Linux.
func tune(net.Conn) {}
