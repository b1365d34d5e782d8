package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clitest"
	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/testkit/brokertest"
)

// TestPub publishes every non-empty line, including the last one.
func TestPub(t *testing.T) {
	address := clitest.TCPBroker(t)
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

// TestNothingLeavesWithoutTLS: with --tls neither pub nor tail continues in clear text.
func TestNothingLeavesWithoutTLS(t *testing.T) {
	address, cluster := brokertest.Start(t, protocol.DefaultOptions())
	_, err := run(t, time.Minute, "pub", "--topic=orders", "--tls", "--auth-secret=s3cret", "--nsqd-tcp-address="+address, clitest.LineFile(t, "secret"))
	require.ErrorContains(t, err, "does not use TLS")
	_, err = run(t, time.Minute, "tail", "--topic=orders", "--channel=ch", "--tls", "--nsqd-tcp-address="+address)
	require.ErrorContains(t, err, "does not use TLS")
	require.Empty(t, cluster.Puts())
	require.Empty(t, cluster.Directory().Channels("orders"))
}
