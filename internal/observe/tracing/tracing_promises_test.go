package tracing

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestPromiseNoCollector: while a collector does not answer, puts are answered as fast, spans are dropped and counted, and the stop is short.
func TestPromiseNoCollector(t *testing.T) {
	exportTimeout, closeTimeout = defaultExportTimeout, defaultCloseTimeout
	defer func() { exportTimeout, closeTimeout = wait.Limit, wait.Limit }()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	tr, c := newTracer(t, l.Addr().String(), 1)
	p, d := tr.Publisher(&echo{}), draftOf(t, "")
	began := time.Now()
	for range tracesPerSecond {
		p.Publish("orders", api.AnyPartition, nil, d, nobody{})
	}
	require.Less(t, time.Since(began), env.Within(t, time.Second))
	began = time.Now()
	tr.Close()
	require.Less(t, time.Since(began), env.Within(t, closeTimeout+500*time.Millisecond))
	wait.Until(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.dropped > 0 }, "spans are dropped")
}
