package concurrency_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/test/testkit/tcp"
)

// A socket takes bytes until its send buffer is full. From then on Write returns 0 at once.
func TestWriteTakesNoMoreThanThereIsRoomFor(t *testing.T) {
	near, far := tcp.Pair(t)
	w := concurrency.NewNonblockingWriter(near)
	require.NotNil(t, w)
	parts := net.Buffers{[]byte("one "), []byte("two")}
	require.Equal(t, 7, w.Write(parts))
	sent, part := 7, bytes.Repeat([]byte{'x'}, 1<<20)
	for {
		n := w.Write(net.Buffers{part})
		sent += n
		if n == 0 {
			break
		}
	}
	require.NoError(t, near.CloseWrite())
	got, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Len(t, got, sent)
	require.Equal(t, "one two", string(got[:7]))
}

func TestWriteThatFailsWritesNothing(t *testing.T) {
	near, _ := tcp.Pair(t)
	w := concurrency.NewNonblockingWriter(near)
	require.NoError(t, near.SetWriteDeadline(time.Unix(1, 0)))
	require.Zero(t, w.Write(net.Buffers{[]byte("late")}))
	require.NoError(t, near.Close())
	require.Zero(t, w.Write(net.Buffers{[]byte("gone")}))
}

func TestOnlyPlainSockets(t *testing.T) {
	near, _ := tcp.Pair(t)
	pipe, other := net.Pipe()
	defer other.Close()
	for _, nc := range []net.Conn{tls.Client(near, &tls.Config{ServerName: "x"}), pipe} {
		w := concurrency.NewNonblockingWriter(nc)
		require.Nil(t, w)
		require.Zero(t, w.Write(net.Buffers{[]byte("nothing")}))
	}
}
