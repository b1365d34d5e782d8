package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/stretchr/testify/require"
)

// TestFeatureLevelFollowsTheLastBroker: brokers are replaced by newer ones, one at a time, while all of them work together.
// The level rises when the last broker is new. From then on an older build is refused before it touches its disk.
func TestFeatureLevelFollowsTheLastBroker(t *testing.T) {
	t.Parallel()
	const next = metadata.Level + 1 // a level that only this test has
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		require.NoError(t, c.administer("n1", "topic.create", "orders", nil))
		c.eventually(func() bool { return c.nodes["n1"].Cluster().Level == metadata.Level }, "the cluster has no level")
		c.level = next
		for i, name := range []string{"n1", "n2", "n3"} {
			c.kill(name)
			if i == 2 {
				require.Equal(t, metadata.Level, c.nodes["n1"].Cluster().Level, "a broker that does not run may come back")
			}
			c.restart(name)
			c.whole("orders")
			require.NoError(t, c.put(name, "orders", "from a new one"))
		}
		c.eventually(func() bool { return c.nodes["n1"].Cluster().Level == next }, "it does not rise")
		c.kill("n2")
		c.level = metadata.Level
		_, err := c.tryLaunch("n2")
		require.ErrorIs(t, err, session.ErrTooOld)
		c.level = next
		c.restart("n2")
		c.whole("orders")
		require.Len(t, c.drain("n2", "orders", 1), 1)
	})
}
