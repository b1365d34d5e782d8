package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFinishLeavesWithTheNextTick: after a failover the finishes of the last 10 ms, and of the replication lag, may be
// redelivered (P5). So a finish is submitted to replication within 10 ms.
func TestFinishLeavesWithTheNextTick(t *testing.T) {
	t.Parallel()
	const period, step = 10 * time.Millisecond, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.do("n1", "topic.create", "orders", "", nil)
		c.do("n1", "channel.create", "orders", "billing", nil)
		topic, _ := c.nodes["n1"].Topic("orders")
		queue, _ := c.nodes["n1"].Queue(topic.Partition(0))
		s := c.subscribe("n1", "orders", "billing", 1)
		for range 10 {
			require.NoError(t, c.put("n1", "orders", "m"))
			time.Sleep(period + step) // the next finish comes at another moment of the period
			require.False(t, queue.Dirty())
			s.finish(s.next())
			require.True(t, queue.Dirty())
			finished := time.Now()
			for queue.Dirty() && time.Since(finished) <= period {
				time.Sleep(step)
			}
			require.False(t, queue.Dirty(), "the finish stays here for longer than %s", period)
		}
	})
}
