// Package tcptest gives tests a TCP connection on loopback, which is what code needs
// that net.Pipe does not serve: a socket with buffers.
package tcptest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pair is both ends of a connection. They are closed with the test.
func Pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}
