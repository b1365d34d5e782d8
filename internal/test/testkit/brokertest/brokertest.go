// Package brokertest serves the NSQ protocol over TCP for the duration of a test: package
// protocol before the fake broker of edgetest. It has no TLS, no HTTP and no cluster.
package brokertest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// Memory serves a fake broker without sockets, for a test in a bubble of testing/synctest: each call
// of dial opens a connection. The end of the test stops the broker.
func Memory(t *testing.T, o tcp.Options) (dial func() net.Conn, cluster *edgetest.Cluster) {
	t.Helper()
	cluster = edgetest.New()
	h := tcp.New(o, tcp.Backend{Publisher: cluster, Subscribers: cluster})
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		cluster.Close()
	})
	return func() net.Conn {
		near, far := net.Pipe()
		serving.Go(func() { h.Serve(ctx, far) })
		return near
	}, cluster
}

// Start serves a fake broker at a free port of the loopback address. The end of the test
// stops it; its connections must have ended by then.
func Start(t *testing.T, o tcp.Options) (address string, cluster *edgetest.Cluster) {
	t.Helper()
	cluster = edgetest.New()
	h := tcp.New(o, tcp.Backend{Publisher: cluster, Subscribers: cluster})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { h.Serve(t.Context(), conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		serving.Wait()
		cluster.Close()
	})
	return l.Addr().String(), cluster
}
