package nsqd

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChannelsPrescanTogether: the statistics of a topic with many channels that are far behind
// read 65,536 messages for all of them together; before, for each.
func TestChannelsPrescanTogether(t *testing.T) {
	r := newRig(Options{})
	const channels, messages = 50, 20 * readAheadMessages
	begin := func(prefix string) {
		for i := range channels / 2 {
			r.channel(t, prefix+strconv.Itoa(i), ChannelOptions{})
		}
	}
	begin("a")
	r.publishN(messages / 4)
	r.postpone(100*nsPerMS, "delayed")
	begin("b") // after the first one, and not at the beginning of a read
	r.publishN(messages / 4 * 3)
	r.postpone(100*nsPerMS, "delayed too")

	before := r.log.reads
	s := r.Stats("", false)
	require.LessOrEqual(t, r.log.reads-before, messages/readAheadMessages+2)
	require.Len(t, s.Channels, channels)
	for _, c := range s.Channels {
		if c.ChannelName[0] == 'a' {
			require.Equal(t, []int64{messages, 2}, []int64{c.Depth, int64(c.DeferredCount)}, c.ChannelName)
		} else {
			require.Equal(t, []int64{messages / 4 * 3, 1}, []int64{c.Depth, int64(c.DeferredCount)}, c.ChannelName)
		}
	}
	before = r.log.reads
	r.Stats("", false)
	require.Equal(t, before, r.log.reads, "all messages are known")
}

// TestPrescanAfterAChangeOfTheFilter: a delayed message that the former filter rejected is deferred.
func TestPrescanAfterAChangeOfTheFilter(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	c.SetPolicy(Policy{Filter: "header:kind=a"})
	r.postpone(100*nsPerMS, "delayed")
	deferred := func() int { return r.Stats("c", false).Channels[0].DeferredCount }
	require.Zero(t, deferred())
	c.SetPolicy(Policy{})
	require.Equal(t, 1, deferred())
}
