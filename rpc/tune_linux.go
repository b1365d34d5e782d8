package rpc

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsentBytes bounds the bytes that the kernel accepts before it can send them. Without the
// bound, megabytes of bulk would be ahead of a live append.
const unsentBytes = 2 * pieceBytes

// tune sets TCP_NOTSENT_LOWAT. A socket that does not support it still works, only slower, so a failure is ignored.
func tune(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
		})
	}
}
