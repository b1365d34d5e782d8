package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// TestPromiseABrokerThatWaits answers its clients at once, and stops at once.
func TestPromiseABrokerThatWaits(t *testing.T) {
	b := prepare(t)
	b.run("--etcd-endpoints=http://" + b.address(4))
	b.notReady("waiting for the metadata: ")
	began := time.Now()
	b.saysWhyItWaits("waiting for the metadata: ")
	require.Less(t, time.Since(began), env.Within(t, 5*time.Second), "a client that waits is no better off")
	began = time.Now()
	b.stop()
	require.Less(t, time.Since(began), env.Within(t, time.Second))
}
