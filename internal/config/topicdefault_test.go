package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTopicDefaults(t *testing.T) {
	o := load(t, "--topic-default=orders.*:partitions=8; retention-time=24h;replication-factor=3;min-in-sync=2", "--topic-default=*:durability=replicated;max-put-rate=7;idle-after=1m;channel-idle-after=2m")
	require.Len(t, o.TopicDefaults(), 2)
	require.Contains(t, faults(t, source("", nil, "--topic-default=orders:partitions=x"))[0], "--topic-default=orders:partitions=x: orders: partitions must be 1 to 1024")
	for _, flags := range [][]string{{"--topic-idle-after=1h", "--delete-grace=0s"}, {"--topic-default=orders:idle-after=1h", "--delete-grace=0s"},
		{"--channel-idle-after=1h", "--delete-grace=0s"}, {"--topic-default=orders:channel-idle-after=1h", "--delete-grace=0s"}} {
		require.Contains(t, faults(t, source("", nil, flags...))[0], "requires a --delete-grace")
	}
	require.Contains(t, faults(t, source("", nil, "--topic-idle-after=59s"))[0], "must be 1m0s or more, or 0 (never)")
	require.Contains(t, faults(t, source("", nil, "--channel-idle-after=59s"))[0], "must be 1m0s or more, or 0 (never)")
	require.Equal(t, time.Hour, load(t, "--topic-idle-after=1h").TopicIdleAfter)
	require.Equal(t, time.Hour, load(t, "--channel-idle-after=1h").ChannelIdleAfter)
}
