package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

func TestTopicDefaults(t *testing.T) {
	o := load(t, "--topic-default=orders.*:partitions=8; retention-time=24h;replication-factor=3;min-in-sync=2", "--topic-default=*:durability=replicated;max-put-rate=7;idle-after=1m;channel-idle-after=2m")
	require.Equal(t, []config.TopicDefault{
		{Pattern: "orders.*", Partitions: 8, RetentionMS: 86_400_000, ReplicationFactor: 3, MinInSync: 2},
		{Pattern: "*", Durability: "replicated", MaxPutRate: 7, IdleMS: 60_000, ChannelIdleMS: 120_000},
	}, o.TopicDefaults())
	for text, want := range map[string]string{
		"":                                     "no pattern",
		":partitions=8":                        "no pattern",
		"[:partitions=8":                       "no pattern",
		"orders":                               `no setting ""`,
		"orders:partitons=8":                   `no setting "partitons"`,
		"orders:partitions=0":                  "1 to 1024",
		"orders:partitions=1025":               "1 to 1024",
		"orders:durability=never":              "sync or replicated",
		"orders:retention-time=1":              "duration",
		"orders:idle-after=59s":                "at least 1m0s",
		"orders:channel-idle-after=59s":        "at least 1m0s",
		"orders:max-bytes=-1":                  "above 0",
		"orders:min-in-sync=2":                 "takes a replication-factor",
		"o:replication-factor=2;min-in-sync=3": "more than",
	} {
		_, err := config.ParseTopicDefault(text)
		require.ErrorContains(t, err, want, text)
	}
	require.Contains(t, faults(t, source("", nil, "--topic-default=orders:partitions=x"))[0], "--topic-default=orders:partitions=x: orders: partitions must be 1 to 1024")
	for _, flags := range [][]string{{"--topic-idle-after=1h", "--delete-grace=0s"}, {"--topic-default=orders:idle-after=1h", "--delete-grace=0s"},
		{"--channel-idle-after=1h", "--delete-grace=0s"}, {"--topic-default=orders:channel-idle-after=1h", "--delete-grace=0s"}} {
		require.Contains(t, faults(t, source("", nil, flags...))[0], "requires a --delete-grace")
	}
	require.Contains(t, faults(t, source("", nil, "--topic-idle-after=59s"))[0], "at least 1m0s")
	require.Contains(t, faults(t, source("", nil, "--channel-idle-after=59s"))[0], "at least 1m0s")
	require.Equal(t, time.Hour, load(t, "--topic-idle-after=1h").TopicIdleAfter)
	require.Equal(t, time.Hour, load(t, "--channel-idle-after=1h").ChannelIdleAfter)
}
