package concurrency

// A NonblockingWriter writes as many bytes to a socket as its send buffer takes, without
// blocking.
//
// A goroutine that must not block, such as a core loop, answers with it directly. The
// alternative, waking the connection's writer, costs more than the write. The bytes that
// the socket does not take are left to that writer.
//
// The package does not buffer, retry or report errors: the blocking write of the remaining
// bytes reports them. The caller serialises a Writer with every other user of the
// connection; without that, a write may block behind another one.

import (
	"net"
	"syscall"
)

// NonblockingWriter writes to one TCP connection. A nil Writer writes nothing.
type NonblockingWriter struct{ raw syscall.RawConn }

// NewNonblockingWriter returns the writer of a plain TCP connection. It returns nil for any other connection
// (a TLS connection encrypts before it writes to the socket), and on systems other than Linux.
func NewNonblockingWriter(nc net.Conn) *NonblockingWriter {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !supported {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return &NonblockingWriter{raw}
}

// Write writes the parts in order and returns the number of bytes that the socket has taken.
// It returns 0 also if the write fails or if the connection's deadline has passed.
func (w *NonblockingWriter) Write(parts net.Buffers) (n int) {
	if w == nil {
		return 0
	}
	_ = w.raw.Write(func(fd uintptr) bool {
		n = writev(int(fd), parts)
		return true // false would block until the socket is writable
	})
	return n
}
