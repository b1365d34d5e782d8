package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/brokertest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
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
	address, cluster := brokertest.Start(t, tcp.DefaultOptions())
	_, err := run(t, time.Minute, "pub", "--topic=orders", "--tls", "--auth-secret=s3cret", "--nsqd-tcp-address="+address, clitest.LineFile(t, "secret"))
	require.ErrorContains(t, err, "does not use TLS")
	_, err = run(t, time.Minute, "tail", "--topic=orders", "--channel=ch", "--tls", "--nsqd-tcp-address="+address)
	require.ErrorContains(t, err, "does not use TLS")
	require.Empty(t, cluster.Puts())
	require.Empty(t, cluster.Directory().Channels("orders"))
}

// TestPubKeepsTheBytesOfALine: a carriage return belongs to the message, and a line may have the size of the largest
// message.
func TestPubKeepsTheBytesOfALine(t *testing.T) {
	o := tcp.DefaultOptions()
	o.MaxMsgSize = 8 << 20
	address, cluster := brokertest.Start(t, o)
	long := strings.Repeat("x", 8<<20)
	sub, err := cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "orders", Channel: "c", Partition: -1, MsgTimeoutMS: 60_000})
	require.NoError(t, err)
	defer sub.Close(true)
	for _, batch := range []string{"1", "10"} {
		_, err := run(t, time.Minute, "pub", "--topic=orders", "--batch="+batch, "--nsqd-tcp-address="+address, clitest.LineFile(t, "a\r", long, "", "b"))
		require.NoError(t, err)
		var bodies []string
		for _, d := range sub.Pull(9, nil) {
			bodies = append(bodies, string(d.Message.Body))
		}
		require.True(t, slices.Equal([]string{"a\r", long, "b"}, bodies), "%d messages", len(bodies))
	}
	_, err = run(t, time.Minute, "pub", "--topic=orders", "--nsqd-tcp-address="+address, clitest.LineFile(t, long+"x"))
	require.ErrorContains(t, err, "too big", "the broker says so")
}
