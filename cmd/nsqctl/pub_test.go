package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge/edgetest"
	"github.com/lockstepmq/lockstep/internal/protocol"
)

// tcpBroker serves clients, and forgets everything with the test.
func tcpBroker(t *testing.T) string {
	t.Helper()
	cluster := edgetest.New()
	h := protocol.New(protocol.DefaultOptions(), protocol.Backend{Publisher: cluster, Subscribers: cluster})
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
	return l.Addr().String()
}

// TestPub publishes every line that is not empty, the last one too.
func TestPub(t *testing.T) {
	address := tcpBroker(t)
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte("one\n\ntwo\nthree"), 0o600))
	for _, batch := range []string{"1", "2"} {
		out, err := run(t, time.Minute, "pub", "--topic=orders", "--batch="+batch, "--nsqd-tcp-address="+address, "-o=json", name)
		require.NoError(t, err)
		var report map[string]float64
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		require.EqualValues(t, 3, report["messages"])
		require.Positive(t, report["messages_per_second"])
	}
	out, err := run(t, time.Minute, "sub", "--topic=orders", "--channel=ch", "-n=6", "--nsqd-tcp-address="+address)
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\nthree\none\ntwo\nthree\n", out)
}
