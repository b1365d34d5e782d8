package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// TestChaosWipedWhileAnotherIsStopped: a broker whose disk was wiped joins etcd
// again while another one is stopped. That one wakes up with a list of members
// that still has the old member at this address: no member may take its identity.
func TestChaosWipedWhileAnotherIsStopped(t *testing.T) {
	Inside(t)
	c := newCluster(t, 5, false)
	first, victim := c.brokers[0], c.brokers[1] // etcd itself would ask in the order of addresses
	c.pause(first)
	c.kill(victim)
	require.NoError(t, victim.clear())
	c.start(victim)
	_, ok := within(20*time.Second, func() bool { return victim.logged("joining as a new member") })
	require.True(t, ok, "%s does not join; see %s", victim.name, victim.log)
	pause(time.Second) // it starts in the meantime
	c.resume(first)
	took, ok := within(readyLimit, func() bool {
		c.revive(victim)
		var v api.ClusterView
		return c.get(victim, "/v1/cluster", &v) == nil
	})
	require.True(t, ok, "%s does not answer after %s", victim.name, took)
	c.ready(victim)
}
