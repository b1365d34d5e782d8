package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// With a linger a put is committed in a later round than it was written in, also one that is alone.
func TestLingerOfABroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 3, linger: 50 * time.Millisecond})
		require.NoError(t, c.put("n1", "orders", "first"))
		on := c.leader("orders")
		for range 3 {
			began := time.Now()
			require.NoError(t, c.put(on, "orders", "lone"))
			require.GreaterOrEqual(t, time.Since(began), c.linger)
		}
	})
}
