package coordinator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// TestCatchUpIsThrottled: a new replica takes as long as the rate says, and puts continue.
func TestCatchUpIsThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 2, catchUpRate: 1 << 20})
		require.NoError(t, c.administer("n1", "topic.create", "orders", map[string]string{"replication_factor": "1"}))
		body := strings.Repeat("x", 256<<10)
		for range 48 {
			require.NoError(t, c.put("n1", "orders", body))
		}
		began := time.Now()
		require.NoError(t, c.administer("n1", "topic.replication", "orders", map[string]string{"replication_factor": "2", "min_in_sync": "1"}))
		for range 5 {
			require.NoError(t, c.put("n2", "orders", "meanwhile"))
			time.Sleep(time.Second)
		}
		v, _ := c.view("n1", "orders")
		require.Len(t, v.Partitions[0].ISR, 1, "12 MiB at 1 MiB a second")
		c.arranged("n1", "orders", func(p api.PartitionView) bool { return len(p.ISR) == 2 })
		took := time.Since(began)
		require.Greater(t, took, 8*time.Second, "the newest batches come from memory")
		require.Less(t, took, 16*time.Second)
	})
}
