package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/edge/edgetest"
	"github.com/lockstepmq/lockstep/internal/protocol"
)

// tcpBroker serves clients, and forgets everything with the test.
func tcpBroker(t *testing.T) string {
	t.Helper()
	address, _ := tcpBrokerWith(t, protocol.DefaultOptions())
	return address
}

func tcpBrokerWith(t *testing.T, o protocol.Options) (string, *edgetest.Cluster) {
	t.Helper()
	cluster := edgetest.New()
	h := protocol.New(o, protocol.Backend{Publisher: cluster, Subscribers: cluster})
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

// TestPubGivesUpWhatCannotBe: a message that no broker takes is not put again.
func TestPubGivesUpWhatCannotBe(t *testing.T) {
	o := protocol.DefaultOptions()
	o.MaxMsgSize = 10
	address, _ := tcpBrokerWith(t, o)
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte("one\nmuch too long a line\n"), 0o600))
	_, err := run(t, time.Minute, "pub", "--topic=orders", "--window=1", "--nsqd-tcp-address="+address, name)
	require.ErrorContains(t, err, "a put failed 1 times, last: E_BAD_MESSAGE")
	require.ErrorContains(t, err, "(1 messages were answered OK)")
}

// TestPubTriesARefusedPutInPeace: a broker that refuses for now is not asked
// thousands of times a second.
func TestPubTriesARefusedPutInPeace(t *testing.T) {
	address, cluster := tcpBrokerWith(t, protocol.DefaultOptions())
	cluster.FailPuts(edge.ErrDiskFull)
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte("one\n"), 0o600))
	_, err := run(t, time.Minute, "pub", "--topic=orders", "--retry=1s", "--nsqd-tcp-address="+address, name)
	require.ErrorContains(t, err, "E_PUB_FAILED")
	require.LessOrEqual(t, len(cluster.Puts()), 25)
	require.Greater(t, len(cluster.Puts()), 1)
}

// TestPubTriesAWindowAgain: hundreds of puts that were refused together do not
// wait for one another.
func TestPubTriesAWindowAgain(t *testing.T) {
	address, cluster := tcpBrokerWith(t, protocol.DefaultOptions())
	cluster.FailPuts(edge.ErrDiskFull)
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("line\n", 500)), 0o600))
	var healing sync.WaitGroup
	defer healing.Wait()
	healing.Go(func() {
		assert.Eventually(t, func() bool { return len(cluster.Puts()) >= 500 }, 10*time.Second, time.Millisecond)
		cluster.FailPuts(nil)
	})
	_, err := run(t, 10*time.Second, "pub", "--topic=orders", "--nsqd-tcp-address="+address, name)
	require.NoError(t, err)
}
