package stops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// TestAllStopAtOnce: Ctrl-C of a whole cluster. No broker can transfer leadership to
// brokers that stop too, and none may wait for that. Nothing is lost.
func TestAllStopAtOnce(t *testing.T) {
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 8)
	for i := range e2etest.Rounds(2, 10) {
		require.Equal(t, judge.OK, e2etest.PutOnce(c.Brokers[0], e2etest.Topic, "before"))
		began := time.Now()
		require.NoError(t, c.StopAll(20*time.Second))
		took := time.Since(began)
		t.Logf("all ended after %s", took.Round(time.Millisecond))
		require.Less(t, took, e2etest.Slack(2*time.Second))
		require.NoError(t, c.StartAll())
		c.WaitReady()
		c.Whole(e2etest.Topic)
		c.Until("all messages", func() bool { return c.Committed(e2etest.Topic) == uint64(i+1) })
	}
}
