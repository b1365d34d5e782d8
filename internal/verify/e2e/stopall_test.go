package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/verify/e2e/history"
)

// TestAllStopAtOnce: Ctrl-C of a whole cluster. No broker can transfer leadership to
// brokers that stop too, and none may wait for that. Nothing is lost.
func TestAllStopAtOnce(t *testing.T) {
	c := start(t, 3)
	c.create(topic, channel, 8)
	for i := range rounds(2, 10) {
		require.Equal(t, history.OK, putOnce(c.Brokers[0], topic, "before"))
		began := time.Now()
		require.NoError(t, c.StopAll(20*time.Second))
		took := time.Since(began)
		t.Logf("all ended after %s", took.Round(time.Millisecond))
		require.Less(t, took, slack(2*time.Second))
		require.NoError(t, c.StartAll())
		c.ready()
		c.whole(topic)
		c.until("all messages", func() bool { return c.committed(topic) == uint64(i+1) })
	}
}
