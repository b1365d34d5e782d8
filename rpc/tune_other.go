//go:build !linux

package rpc

import "net"

// tune sets TCP_NODELAY; a socket without it still works.
func tune(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true)
	}
}
