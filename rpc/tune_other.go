//go:build !linux

package rpc

import (
	"net"
	"syscall"
)

// tune sets TCP_NODELAY; a socket without it still works.
func tune(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true)
	}
}

// writeNow leaves everything to the writer.
func writeNow(syscall.RawConn, net.Buffers) int { return 0 }
