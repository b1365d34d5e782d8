package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/stretchr/testify/require"
)

// TestFeatureLevelFollowsTheLastBroker: brokers are replaced by newer ones, one at
// a time, and work together. The level rises when all are new, not
// before; from then on an older build is refused, before it touches its disk.
func TestFeatureLevelFollowsTheLastBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
		c.level = 1
		for i, name := range []string{"n1", "n2", "n3"} {
			c.kill(name)
			if i == 2 {
				require.Zero(t, c.nodes["n1"].Cluster().Level, "who does not run may come back")
			}
			c.restart(name)
			c.whole("orders")
			require.NoError(t, c.put(name, "orders", "from a new one"))
		}
		c.eventually(func() bool { return c.nodes["n1"].Cluster().Level == 1 }, "it does not rise")
		c.kill("n2")
		c.level = 0
		_, err := c.tryLaunch("n2")
		require.ErrorIs(t, err, session.ErrTooOld)
		c.level = 1
		c.restart("n2")
		c.whole("orders")
		require.Len(t, c.drain("n2", "orders", 1), 1)
	})
}
