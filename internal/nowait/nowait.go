// Package nowait writes to a socket what it takes without waiting.
//
// Who may not block, for others wait for it, can so answer by itself instead of
// waking a goroutine for it, which costs more than the write. The rest, if any, is
// that goroutine's.
//
// It does not buffer, retry or report errors: who writes the rest finds them. One
// write at a time: the caller serialises this writer with every other user of the
// connection, or it may wait for one of them after all.
package nowait

import (
	"net"
	"syscall"
)

// Writer writes to one connection. A nil Writer writes nothing.
type Writer struct{ raw syscall.RawConn }

// New is nil if nc is no plain TCP connection (under TLS bytes are not the
// socket's), or if the system has no such writes.
func New(nc net.Conn) *Writer {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !supported {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return &Writer{raw}
}

// Write writes the parts in order, as far as the socket takes them now, and says how
// many bytes that were: 0 also if the write failed, or its deadline has passed.
func (w *Writer) Write(parts net.Buffers) (n int) {
	if w == nil {
		return 0
	}
	_ = w.raw.Write(func(fd uintptr) bool {
		n = writev(int(fd), parts)
		return true // or it would wait
	})
	return n
}
