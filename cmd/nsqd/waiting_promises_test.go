package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestPromiseABrokerThatWaits answers its clients within --put-hold, probes at once, and stops at once, although
// clients wait.
func TestPromiseABrokerThatWaits(t *testing.T) {
	b := prepare(t)
	b.run("--etcd-endpoints=http://"+b.address(4), briefHold)
	b.notReady("waiting for the metadata: ")
	began := time.Now()
	b.saysWhyItWaits("waiting for the metadata: ")
	require.Less(t, time.Since(began), env.Within(t, 5*time.Second), "25 requests")
	b.stop()
	b.run("--etcd-endpoints=http://" + b.address(4))
	b.notReady("waiting for the metadata: ")
	c := b.dial()
	c.command("x", "PUB t")
	began = time.Now()
	status, _ := b.get("/healthz")
	require.Equal(t, http.StatusOK, status)
	b.stop()
	require.Less(t, time.Since(began), env.Within(t, time.Second))
	_, text := c.next()
	require.Contains(t, text, "E_PUB_FAILED PUB failed not ready, not stored: ")
}
