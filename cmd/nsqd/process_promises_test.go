package main

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestPromiseSingleBrokerStartsFast: a single broker answers within a second and a half of its start
// on an empty directory.
func TestPromiseSingleBrokerStartsFast(t *testing.T) {
	b := prepare(t)
	b.env = []string{productFiles}
	began := time.Now()
	b.run()
	b.ready()
	require.Less(t, time.Since(began), env.Within(t, 1500*time.Millisecond))
}

// TestPromiseSecondSignalExitsAtOnce: it does not wait for a pending request.
func TestPromiseSecondSignalExitsAtOnce(t *testing.T) {
	b := start(t)
	conn, err := net.Dial("tcp", b.address(1))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /pub?topic=orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na")
	require.NoError(t, err)
	b.signal(syscall.SIGINT) // the pending request delays the first stop
	time.Sleep(secondSignalAfter + 100*time.Millisecond)
	b.signal(syscall.SIGINT)
	began := time.Now()
	require.Equal(t, 1, b.wait())
	require.Less(t, time.Since(began), env.Within(t, 2*time.Second))
	require.Contains(t, b.logged(), "second signal")
}

// TestPromiseSignalThatIsSentTwice: a signal to a process and its group, as timeout(1) sends it, is one planned stop.
func TestPromiseSignalThatIsSentTwice(t *testing.T) {
	b := start(t)
	c := b.dial()
	c.put("orders", "a message")
	first := time.Now()
	b.eventually("it received many signals", func() bool {
		_ = b.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended already
		return time.Since(first) > secondSignalAfter/2
	})
	require.Zero(t, b.wait())
	require.NotContains(t, b.logged(), "second signal")
}
