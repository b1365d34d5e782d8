// Package tcp gives tests a TCP connection on loopback. Code that depends on the buffers of
// a socket cannot be tested with net.Pipe, which has none.
package tcp

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pair returns both ends of a connection. The end of the test closes them.
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
