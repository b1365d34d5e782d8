package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// TestFinishElsewhereKeepsWhatIsTheChannelsOwn: the copies of finished messages are finished. Messages that
// the channel delays, has requeued or backs off stay, also after a failover.
func TestFinishElsewhereKeepsWhatIsTheChannelsOwn(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		r := newRig(Options{})
		c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest, Ordered: ordered})
		r.publishN(3)                   // 0, 1 and 2 are copies
		r.postpone(60_000*nsPerMS, "l") // 3 is the channel's own, and delayed
		r.postpone(60_000*nsPerMS, "d") // 4 is a delayed copy
		r.publishN(5)                   // 5 to 9 are copies
		s := subscribe(t, c)
		got := c.Pull(s, 1, nil)
		require.Len(t, got, 1)
		require.NoError(t, c.Requeue(s, c.of(0, 0), 60_000))
		stays, err := r.FinishElsewhere(t.Context(), "c", []cursor.Span{{From: 0, To: 10}})
		require.NoError(t, err)
		require.Equal(t, cursor.Elsewhere{Stays: true}, stays, "it has a consumer")
		c.Detach(s, true)
		require.Len(t, c.Deferred(10), 3, "the statistics find the delayed messages")

		spans := []cursor.Span{{From: 0, To: 3}, {From: 4, To: 8}, {From: 8, To: 8}, {From: 20, To: 30}}
		e, err := r.FinishElsewhere(t.Context(), "c", spans)
		require.NoError(t, err)
		require.Equal(t, cursor.Elsewhere{Finished: 2 + 1 + 3, Kept: 1}, e)
		e, err = r.FinishElsewhere(t.Context(), "c", spans)
		require.NoError(t, err)
		require.Equal(t, cursor.Elsewhere{Kept: 1}, e, "a repeat changes nothing")
		requireExact(t, r.Partition, c)

		r.Flush()
		n := r.failover()
		c, _ = n.Channel("c")
		require.EqualValues(t, 8, c.cursor.Confirmed())
		left := []uint64{}
		for _, d := range c.Deferred(10) {
			left = append(left, uint64(d.Seq()))
		}
		require.ElementsMatch(t, []uint64{0, 3}, left)
		n.tick(61_000)
		require.ElementsMatch(t, []string{"body", "l", "body", "body"}, drain(t, c, subscribe(t, c)), "0, 3, 8 and 9")
	}
}

// TestFinishElsewhereAndLeftConsumers: a message that waits for the timeout of a consumer that has left is
// delivered again.
func TestFinishElsewhereAndLeftConsumers(t *testing.T) {
	r, c, s := delivered(t, Options{MsgTimeoutMS: 1000, MaxMsgTimeoutMS: 1000}, "c", ChannelOptions{Origin: FromEarliest}, 5, 2)
	c.Detach(s, false)
	e, err := r.FinishElsewhere(t.Context(), "c", []cursor.Span{{From: 0, To: 4}})
	require.NoError(t, err)
	require.Equal(t, cursor.Elsewhere{Finished: 2, Kept: 2}, e)
	r.tick(2000)
	require.Len(t, drain(t, c, subscribe(t, c)), 3, "0, 1 and 4")
	_, err = r.FinishElsewhere(t.Context(), "none", nil)
	require.ErrorIs(t, err, outcome.ErrChannelNotFound)
	r.Unlead()
	_, err = r.FinishElsewhere(t.Context(), "c", []cursor.Span{{From: 0, To: 5}})
	require.ErrorIs(t, err, ErrNotLeader)
}
