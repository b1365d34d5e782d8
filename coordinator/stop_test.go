package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPlannedStopKeepsTheLastChanges: channels hand their changes to replication every
// 10 ms. A broker without a transfer target that stops right after a finish and a requeue
// still makes both durable: after its restart neither message is delivered.
func TestPlannedStopKeepsTheLastChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		require.NoError(t, c.put("n1", "orders", "finished"))
		require.NoError(t, c.put("n1", "orders", "requeued"))
		s := c.subscribe("n1", "orders", "billing", 2)
		got := s.take(2)
		s.finish(got[0])
		require.NoError(t, s.sub.Requeue(got[1].ID, time.Hour.Milliseconds()))

		stop, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c.nodes["n1"].Stop(stop)
		delete(c.nodes, "n1")
		c.restart("n1")
		c.leader("orders")
		c.counts("orders", "billing", 0, 0, 1)
	})
}
