package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/stretchr/testify/require"
)

// topicDefaults are values of --topic-default.
func topicDefaults(t *testing.T, texts ...string) (list []option.Default) {
	for _, text := range texts {
		d, err := option.ParseDefault(text)
		require.NoError(t, err)
		list = append(list, d)
	}
	return list
}

// TestEveryOptionHasADefaultByName: --topic-default sets any option of a new topic, and its order; what the creation
// names goes first.
func TestEveryOptionHasADefaultByName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := graced(t, cluster{size: 1, topicDefaults: topicDefaults(t, "*:ordered=true;retention-time=1s;retention-bytes=2;max-bytes=3;"+
			"message-ttl=4s;max-put-rate=5;max-put-bytes-rate=6;dedupe-window=7s;dedupe=content;idle-after=8m;channel-idle-after=9m")})
		all := option.Effective{RetentionMS: 1000, RetentionBytes: 2, MaxBytes: 3, TTLMS: 4000, MaxPutRate: 5, MaxPutBytesRate: 6,
			DedupeWindowMS: 7000, Dedupe: option.DedupeContent, IdleMS: 480_000, ChannelIdleMS: 540_000}
		require.NoError(t, c.administer("n1", "topic.create", "created", nil))
		require.Error(t, c.put("n1", "made", "m"), "a larger message than max_bytes")
		for _, topic := range []string{"created", "made"} {
			v, _ := c.view("n1", topic)
			require.Equal(t, all, v.Effective, topic)
			require.True(t, v.Ordered, topic)
		}
		require.NoError(t, c.administer("n1", "topic.create", "named", map[string]string{"ordered": "false", "dedupe": "id", "dedupe_window": "0s"}))
		v, _ := c.view("n1", "named")
		named := all
		named.Dedupe, named.DedupeWindowMS = option.DedupeID, option.DefaultDedupeWindowMS
		require.Equal(t, named, v.Effective)
		require.False(t, v.Ordered)
	})
}

// TestTopicDefaultsByName: the first pattern that matches counts, for a topic that a put makes as
// for one that is created; what the creation names goes first.
func TestTopicDefaultsByName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 2, topicDefaults: topicDefaults(t, "orders.*:partitions=3;replication-factor=1;retention-time=7s", "*.eu:partitions=5")})
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
