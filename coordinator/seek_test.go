package coordinator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
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
		seek := func(on, to string, partition int, dry bool) edge.SeekResult {
			r, err := c.nodes[on].Seek(t.Context(), edge.SeekChannel{Topic: "orders", Channel: "billing", To: to, Partition: partition, DryRun: dry})
			require.NoError(t, err)
			require.Equal(t, dry, r.DryRun)
			return r
		}
		var latest, earliest edge.SeekResult
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

		idle, err := c.nodes["n2"].Seek(t.Context(), edge.SeekChannel{Topic: "orders", Channel: "none", To: "latest", Partition: -1, DryRun: true})
		require.ErrorIs(t, err, edge.ErrChannelNotFound, "%+v", idle)
		_, err = c.nodes["n2"].Seek(t.Context(), edge.SeekChannel{Topic: "orders", Channel: "billing", To: "latest", Partition: 3, DryRun: true})
		require.ErrorIs(t, err, edge.ErrInvalid)
	})
}
