package option_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/option"
)

// parsed returns a default without its changes, and the options that they make.
func parsed(t *testing.T, text string) (option.Default, option.Topic) {
	t.Helper()
	d, err := option.ParseDefault(text)
	require.NoError(t, err)
	var o option.Topic
	d.Options.Apply(&o)
	require.Equal(t, d.Options.Values, o)
	d.Options = option.Change[option.Topic]{}
	return d, o
}

func TestParseDefault(t *testing.T) {
	d, o := parsed(t, "orders.*:partitions=8; retention-time=24h;replication-factor=3;min-in-sync=2")
	require.Equal(t, option.Default{Pattern: "orders.*", Partitions: 8, ReplicationFactor: 3, MinInSync: 2}, d)
	require.Equal(t, option.Topic{RetentionMS: 86_400_000}, o)
	d, o = parsed(t, "*:durability=replicated;ordered=true;max-put-rate=7;idle-after=1m;channel-idle-after=2m;dedupe=content;dedupe-window=5m")
	require.Equal(t, option.Default{Pattern: "*", Durability: "replicated", Ordered: true}, d)
	require.Equal(t, option.Topic{MaxPutRate: 7, IdleMS: 60_000, ChannelIdleMS: 120_000, Dedupe: option.DedupeContent, DedupeWindowMS: 300_000}, o)
	for text, want := range map[string]string{
		"":                                     "no pattern",
		":partitions=8":                        "no pattern",
		"[:partitions=8":                       "no pattern",
		"orders":                               `no setting ""`,
		"orders:partitons=8":                   `no setting "partitons": partitions, replication-factor, min-in-sync, durability, ordered, retention-time, `,
		"orders:retention_time=1h":             `no setting "retention_time"`,
		"orders:partitions=0":                  "1 to 1024",
		"orders:partitions=1025":               "1 to 1024",
		"orders:durability=never":              "sync or replicated",
		"orders:ordered=never":                 "true or false",
		"orders:retention-time=1":              `retention-time must be a duration such as 24h, not "1"`,
		"orders:retention-time=":               `retention-time must be a duration such as 24h, not ""`,
		"orders:idle-after=59s":                `idle-after must be 1m0s or more, or 0 (never), not "59s"`,
		"orders:channel-idle-after=59s":        "1m0s or more",
		"orders:dedupe-window=2h":              "1s to 1h0m0s",
		"orders:dedupe=body":                   `dedupe must be id or content, not "body"`,
		"orders:max-bytes=-1":                  "a number of bytes",
		"orders:min-in-sync=2":                 "takes a replication-factor",
		"o:replication-factor=2;min-in-sync=3": "more than",
	} {
		_, err := option.ParseDefault(text)
		require.ErrorContains(t, err, want, text)
	}
}
