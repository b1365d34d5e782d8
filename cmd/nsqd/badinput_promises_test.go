package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestPromiseProducerThatNeverReads pipelines without reading its answers: the broker stops reading
// it, and uses no further memory.
func TestPromiseProducerThatNeverReads(t *testing.T) {
	t.Parallel()
	b := start(t)
	c := b.dial()
	one := []byte("PUB t\n" + body("x"))
	burst := make([]byte, 0, len(one)*10_000)
	for range 10_000 {
		burst = append(burst, one...)
	}
	before := b.memory()
	require.NoError(t, c.conn.SetWriteDeadline(time.Now().Add(3*time.Second)))
	var err error
	for range 200 { // 2,000,000 puts
		if _, err = c.conn.Write(burst); err != nil {
			break
		}
	}
	require.Error(t, err, "the broker never stopped reading")
	require.Less(t, b.memory()-before, memoryFactor*200<<20)
	b.dial().put("t", "x")
	b.quiet()
}

// TestPromiseAbusedHTTP: a request that stops within its head does not delay a stop.
func TestPromiseAbusedHTTP(t *testing.T) {
	b := start(t)
	began := time.Now()
	b.stopsBesideHalfARequest()
	require.Less(t, time.Since(began), env.Within(t, 15*time.Second))
}
