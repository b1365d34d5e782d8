package concurrency

import (
	"net"
	"syscall"
)

// NonblockingWriter writes as many bytes to a TCP connection as its send buffer takes, without
// blocking. A goroutine that must not block, such as a core loop, answers with it directly, because
// waking the connection's writer costs more than the write. The remaining bytes are left to that
// writer, whose blocking write also reports the errors. The caller serialises it with every other user
// of the connection; otherwise a write may block behind another one. A nil writer writes nothing.
type NonblockingWriter struct{ raw syscall.RawConn }

// NewNonblockingWriter returns the writer of a plain TCP connection, and nil for any other connection
// (TLS encrypts before it writes to the socket) and on systems other than Linux.
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

// Write writes the parts in order and returns the number of bytes that the socket has taken. It also returns 0 if the
// write fails or the connection's deadline has passed.
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
