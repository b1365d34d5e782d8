package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestTopicIsMadeOnTheBrokersThatRun: two of four brokers run, three replicas are
// wanted, two of them in sync: the two that run hold it, and one that is away.
func TestTopicIsMadeOnTheBrokersThatRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		alive := func(want int) {
			c.eventually(func() bool {
				alive := 0
				for _, v := range c.nodes["n3"].Cluster().Brokers {
					if v.Alive {
						alive++
					}
				}
				return alive == want
			}, "%d brokers", want)
		}
		alive(4)
		c.kill("n1")
		c.kill("n2")
		alive(2)
		require.NoError(t, c.administer("n3", "topic.create", "orders", map[string]string{"replication_factor": "3", "min_in_sync": "2"}))
		c.eventually(func() bool { v, ok := c.view("n4", "orders"); return ok && len(v.Partitions[0].ISR) == 2 }, "made")
		require.NoError(t, c.put("n3", "orders", "m"))
	})
}
