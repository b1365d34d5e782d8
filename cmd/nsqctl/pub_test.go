package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/testkit/brokertest"
)

// tcpBroker is a fake broker for the duration of the test.
func tcpBroker(t *testing.T) string {
	t.Helper()
	address, _ := brokertest.Start(t, protocol.DefaultOptions())
	return address
}

// running is a running command whose input is not at its end.
type running struct {
	t      *testing.T
	in     *io.PipeWriter
	cancel context.CancelFunc // Ctrl-C
	done   chan struct{}
	mu     sync.Mutex
	out    bytes.Buffer
	err    error // after done
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(b)
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func begin(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	r := &running{t: t, in: out, cancel: cancel, done: make(chan struct{})}
	root := newRoot()
	root.SetOut(r)
	root.SetErr(r)
	root.SetIn(in)
	root.SetArgs(args)
	go func() { // ends with the command
		defer close(r.done)
		r.err = root.ExecuteContext(ctx)
	}()
	t.Cleanup(func() { _ = out.Close(); cancel(); <-r.done })
	return r
}

// ends waits for the end of the command.
func (r *running) ends() error {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(10 * time.Second):
		require.FailNow(r.t, "it goes on", r.said())
	}
	return r.err
}

func lineFile(t *testing.T, lines ...string) string {
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return name
}

// TestPub publishes every non-empty line, including the last one.
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

// TestNothingLeavesWithoutTLS: with --tls neither pub nor tail continues in clear text.
func TestNothingLeavesWithoutTLS(t *testing.T) {
	address, cluster := brokertest.Start(t, protocol.DefaultOptions())
	_, err := run(t, time.Minute, "pub", "--topic=orders", "--tls", "--auth-secret=s3cret", "--nsqd-tcp-address="+address, lineFile(t, "secret"))
	require.ErrorContains(t, err, "does not use TLS")
	_, err = run(t, time.Minute, "tail", "--topic=orders", "--channel=ch", "--tls", "--nsqd-tcp-address="+address)
	require.ErrorContains(t, err, "does not use TLS")
	require.Empty(t, cluster.Puts())
	require.Empty(t, cluster.Directory().Channels("orders"))
}
