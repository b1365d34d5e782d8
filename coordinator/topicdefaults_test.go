package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/stretchr/testify/require"
)

// TestTopicDefaultsByName: the first pattern that matches counts, for a topic that a put makes as
// for one that is created; what the creation names goes first.
func TestTopicDefaultsByName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 2, topicDefaults: []coordinator.TopicDefault{
			{Pattern: "orders.*", Partitions: 3, ReplicationFactor: 1, Options: metadata.TopicOptions{RetentionMS: 7000}},
			{Pattern: "*.eu", Partitions: 5},
		}})
		for _, name := range []string{"orders.eu", "bills.eu", "bills.us"} {
			require.NoError(t, c.put("n1", name, "m"))
		}
		require.NoError(t, c.administer("n2", "topic.create", "orders.named", map[string]string{"partitions": "2", "retention_time": "1s"}))
		require.NoError(t, c.administer("n2", "topic.create", "orders.plain", nil))
		for name, want := range map[string][4]int64{ // partitions, replicas, minimum, retention
			"orders.eu": {3, 1, 1, 7000}, "bills.eu": {5, 2, 2, 0}, "bills.us": {1, 2, 2, 0}, "orders.named": {2, 1, 1, 1000}, "orders.plain": {3, 1, 1, 7000},
		} {
			v, ok := c.view("n2", name)
			require.True(t, ok)
			require.Equal(t, want, [4]int64{int64(len(v.Partitions)), int64(v.ReplicationFactor), int64(v.MinInSync), v.RetentionMS}, name)
		}
	})
}
