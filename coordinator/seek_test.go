package coordinator_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestSeekSaysWhatItMoves: any broker counts what a seek would skip and repeat in every partition, the
// seek itself has the same numbers, and the channel then delivers as many messages.
func TestSeekSaysWhatItMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "3"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		const messages = 60
		for i := range messages {
			c.putMessage("n1", "orders", nil, queue.Message{Body: fmt.Appendf(nil, "m%d", i)})
		}
		s := c.subscribe("n2", "orders", "billing", messages)
		finished := 0
		for i, d := range s.take(messages) {
			switch {
			case i%5 == 0: // stays in flight
			case i%7 == 0:
				require.NoError(t, s.sub.Requeue(d.ID, time.Hour.Milliseconds()))
			default:
				require.NoError(t, s.sub.Finish(d.ID))
				finished++
			}
		}
		seek := func(on, to string, partition int, dry bool) api.SeekResult {
			r, err := c.nodes[on].Seek(t.Context(), api.SeekChannel{Topic: "orders", Channel: "billing", To: to, Partition: partition, DryRun: dry})
			require.NoError(t, err)
			require.Equal(t, dry, r.DryRun)
			return r
		}
		var latest, earliest api.SeekResult
		c.eventually(func() bool {
			latest, earliest = seek("n1", "latest", -1, true), seek("n1", "earliest", -1, true)
			return *earliest.Repeats == uint64(finished) && *latest.Skips == uint64(messages-finished)
		}, "the finishes have reached the leaders: %+v", &earliest)
		require.Zero(t, *latest.Repeats)
		require.Zero(t, *earliest.Skips)
		require.Len(t, latest.Partitions, 3)
		for _, on := range all {
			require.Equal(t, latest, seek(on, "latest", -1, true), "%s", on)
			one := seek(on, "latest", 1, true)
			require.Equal(t, latest.Partitions[1:2], one.Partitions)
			require.Equal(t, latest.Partitions[1].Skips, one.Skips)
		}
		require.Equal(t, latest, seek("n3", "latest", -1, true), "nothing has moved")

		s.sub.Close(true)
		moved := seek("n3", "earliest", -1, false)
		require.EqualValues(t, finished, *moved.Repeats)
		require.Zero(t, *moved.Skips)
		again := c.subscribe("n1", "orders", "billing", messages)
		again.take(messages)
		again.sub.Close(true)

		idle, err := c.nodes["n2"].Seek(t.Context(), api.SeekChannel{Topic: "orders", Channel: "none", To: "latest", Partition: -1, DryRun: true})
		require.ErrorIs(t, err, outcome.ErrChannelNotFound, "%+v", idle)
		_, err = c.nodes["n2"].Seek(t.Context(), api.SeekChannel{Topic: "orders", Channel: "billing", To: "latest", Partition: 3, DryRun: true})
		require.ErrorIs(t, err, outcome.ErrInvalid)
	})
}

// TestAPlaceBeyondTheEndIsRefused: Unix seconds, milliseconds and microseconds are numbers of messages that do not
// exist. A channel that moved there would skip all that waits. Nothing is moved or created, in no partition.
func TestAPlaceBeyondTheEndIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", map[string]string{"partitions": "3", "retention_time": "1h"})
		c.do("n1", "channel.create", "orders", "billing", nil)
		ends := map[int]uint64{}
		for i := range 12 {
			key := []byte{byte(i)}
			if i >= 6 {
				key = []byte{0}
			}
			place, _ := api.ParseMessageID(c.putMessage("n1", "orders", key, queue.Message{Body: fmt.Appendf(nil, "m%d", i)}))
			ends[int(place.Partition)] = uint64(place.Sequence) + 1
		}
		long, short := 0, 0
		for p := range 3 {
			if ends[p] > ends[long] {
				long = p
			}
			if ends[p] < ends[short] {
				short = p
			}
		}
		require.Less(t, ends[short], ends[long])
		plan := func(on string) api.SeekResult {
			r, err := c.nodes[on].Seek(t.Context(), api.SeekChannel{Topic: "orders", Channel: "billing", To: "latest", Partition: -1, DryRun: true})
			require.NoError(t, err)
			return r
		}
		before := plan("n1")
		require.EqualValues(t, 12, *before.Skips)

		now := time.Now().UTC()
		beyond := fmt.Sprint(ends[long])
		for place, text := range map[string]string{
			fmt.Sprint(now.Unix()):                    fmt.Sprintf("partition 0 (%d); for a time write %s or %d000000000", ends[0], now.Truncate(time.Second).Format(time.RFC3339), now.Unix()),
			fmt.Sprint(now.UnixMilli()):               "for a time write " + now.Truncate(time.Millisecond).Format(time.RFC3339Nano),
			fmt.Sprint(now.UnixMicro()):               "for a time write " + now.Truncate(time.Microsecond).Format(time.RFC3339Nano),
			beyond:                                    fmt.Sprintf("partition %d (%d)", short, ends[short]),
			"5000":                                    "the end is latest",
			now.Add(time.Hour).Format(time.RFC3339):   "is in the future",
			fmt.Sprint(now.Add(time.Hour).UnixNano()): "is in the future",
			"2600-01-01T00:00:00Z":                    "is in the future",
			fmt.Sprint(uint64(math.MaxInt64)):         "is in the future",
			fmt.Sprint(uint64(math.MaxInt64) + 1):     "is not earliest",
		} {
			for _, on := range all {
				for _, dry := range []bool{true, false} {
					_, err := c.nodes[on].Seek(t.Context(), api.SeekChannel{Topic: "orders", Channel: "billing", To: place, Partition: -1, DryRun: dry})
					require.ErrorIs(t, err, outcome.ErrInvalid, place)
					require.ErrorContains(t, err, text)
					require.NotContains(t, err.Error(), "rpc")
				}
			}
			for _, channel := range []string{"new", "new#ephemeral"} {
				err := do(t.Context(), c.nodes["n2"], operation{Verb: "channel.create", Topic: "orders", Channel: channel, Args: map[string]string{"from": place}})
				require.ErrorIs(t, err, outcome.ErrInvalid, place)
				require.ErrorContains(t, err, text)
				for _, reposition := range []bool{true, false} {
					_, err = c.nodes["n3"].Gateway.Subscribe(t.Context(), api.SubscribeRequest{
						Topic: "orders", Channel: channel, Partition: -1, From: place, Reposition: reposition,
						Client: func() api.ClientStats { return api.ClientStats{} },
					})
					require.ErrorIs(t, err, outcome.ErrInvalid, place)
				}
			}
		}
		views, err := c.nodes["n2"].ChannelViews("orders")
		require.NoError(t, err)
		require.Len(t, views, 1, "no channel was made: %v", views)
		_, made := c.stats("orders", "new#ephemeral")
		require.False(t, made)
		require.Equal(t, before, plan("n3"), "nothing was moved")
		_, err = c.nodes["n1"].Peek(t.Context(), api.PeekRequest{Topic: "orders", From: now.Add(time.Hour).Format(time.RFC3339)})
		require.ErrorIs(t, err, outcome.ErrInvalid)

		// A clock a little ahead is no mistake: the place is the end. So is the end itself, in the partition that has it.
		for _, end := range []string{time.Now().Add(30 * time.Second).Format(time.RFC3339), "latest"} {
			r, err := c.nodes["n1"].Seek(t.Context(), api.SeekChannel{Topic: "orders", Channel: "billing", To: end, Partition: -1, DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, 12, *r.Skips)
		}
		c.do("n2", "channel.seek", "orders", "billing", map[string]string{"to": beyond, "partition": fmt.Sprint(long)})
		c.counts("orders", "billing", 12-int(ends[long]), 0, 0)
		c.do("n2", "channel.seek", "orders", "billing", map[string]string{"to": "1970-01-01T00:00:00Z"})
		c.counts("orders", "billing", 12, 0, 0)
		c.do("n2", "channel.create", "orders", "all", map[string]string{"from": "0"})
		s := c.subscribe("n1", "orders", "billing", 12)
		s.take(12)
		s.sub.Close(true)
	})
}
