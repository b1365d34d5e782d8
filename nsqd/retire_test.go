package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestRetirePassesOnTheLastChanges: the next leader has every change that a leader accepted before it transferred its leadership.
func TestRetirePassesOnTheLastChanges(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		r := newRig(Options{})
		c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest, Ordered: ordered})
		s := subscribe(t, c)
		r.publish("0", "1")
		require.Equal(t, []string{"0"}, bodies(c.Pull(s, 1, nil)))
		require.NoError(t, c.Requeue(s, c.of(0, 0), 0))
		got := c.Pull(s, 1, nil)
		require.Equal(t, []string{"0"}, bodies(got))
		require.NoError(t, c.Requeue(s, c.of(got[0].Message.Seq, 0), 5))
		r.Retire()
		require.ErrorIs(t, c.Requeue(s, c.of(got[0].Message.Seq, 0), 5), ErrNotLeader)
		_, lost := <-s.Lost
		require.False(t, lost)
		f := NewPartition("orders", testID, r.log, &replicas{}, r.o)
		for _, d := range r.rep.deltas {
			f.Apply(d)
		}
		fc, _ := f.Channel("c")
		e, ok := fc.cursor.Deferred.Get(0)
		require.True(t, ok)
		require.EqualValues(t, 2, e.Attempts(), "ordered=%v", ordered)
		require.False(t, r.Dirty())

		r.Lead(1) // the transfer came to nothing
		r.tick(6)
		s = subscribe(t, c)
		attempts := map[ident.Sequence]uint16{}
		for _, d := range c.Pull(s, 9, nil) {
			attempts[d.Message.Seq] = d.Message.Attempts
		}
		require.EqualValues(t, 3, attempts[0])
	}
}

// TestReceiptsOfAnAbandonedTransfer: the same leader leads on in its epoch, and has a delivery again when its edge has
// reclaimed it. A receipt that comes before is not refused permanently.
func TestReceiptsOfAnAbandonedTransfer(t *testing.T) {
	r, c, s := delivered(t, Options{}, "ch", ChannelOptions{}, 2, 2)
	require.NoError(t, c.Finish(s, received(1, 2)))
	r.Retire()
	r.Lead(1)
	require.ErrorIs(t, c.Finish(nil, received(0, 1)), outcome.ErrNotInFlight)
	require.True(t, c.Awaited(received(0, 1)))
	require.False(t, c.Awaited(received(1, 2)), "it is finished")
	s = subscribe(t, c)
	require.Empty(t, c.Reclaim(s, []Receipt{received(0, 1)}))
	require.NoError(t, c.Finish(nil, received(0, 1)))
	r.publish("2")
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Undo(s, received(2, 3)))
	require.False(t, c.Awaited(received(2, 3)), "it was made in this leadership")
}
