package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPromiseTimeouts: a message comes again when its timeout is over, not earlier, and not much later.
func TestPromiseTimeouts(t *testing.T) {
	const timeout = 2 * time.Second // long, for the test must leave before the second one
	b := start(t, "--msg-timeout="+timeout.String(), "--max-req-timeout=200ms", "--requeue-on-disconnect=false")
	c := b.dial()
	c.put("orders", "one")
	c.consume("orders", "ch", 1)
	began := time.Now()
	c.message()
	_, attempts, _ := c.message() // timed out
	require.EqualValues(t, 2, attempts)
	require.Greater(t, time.Since(began), timeout-100*time.Millisecond)
	require.Less(t, time.Since(began), 2*timeout)
	_ = c.conn.Close()
	c = b.dial()
	c.consume("orders", "ch", 1)
	id, attempts, _ := c.message()
	require.EqualValues(t, 3, attempts)
	require.Greater(t, time.Since(began), 2*timeout-100*time.Millisecond, "it waited for its timeout")
	began = time.Now()
	c.send("REQ %s 60000\n", id)
	c.message()
	require.Less(t, time.Since(began), 5*time.Second, "clamped")
}
