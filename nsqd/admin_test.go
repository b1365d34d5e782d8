package nsqd

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

func TestSeekChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	r.publishN(10)
	for _, x := range []struct {
		o      ChannelOptions
		left   int
		effect SeekEffect
	}{
		{ChannelOptions{Origin: FromLatest}, 0, SeekEffect{From: 0, To: 10, Skips: 10}},
		{ChannelOptions{Origin: FromEarliest}, 10, SeekEffect{From: 10, To: 0, Repeats: 10}},
		{ChannelOptions{Origin: FromSequence, Sequence: 7}, 3, SeekEffect{From: 0, To: 7, Skips: 7}},
		{ChannelOptions{Origin: FromSequence, Sequence: 70}, 0, SeekEffect{From: 7, To: 10, Skips: 3}},
		{ChannelOptions{Origin: FromSequence, Sequence: 10}, 0, SeekEffect{From: 10, To: 10}},
	} {
		require.Equal(t, x.effect, r.seekChannel(t, "c", x.o))
		require.Equal(t, x.left, countsOf(r.Partition, c).depth)
		requireExact(t, r.Partition, c)
	}
	_, err := r.PlanSeek("none", seekTo(0))
	require.ErrorIs(t, err, outcome.ErrChannelNotFound)
	r.Unlead()
	_, err = r.PlanSeek("c", seekTo(0))
	require.ErrorIs(t, err, ErrNotLeader)
	_, err = r.CreateChannel(t.Context(), "c", ChannelOptions{})
	require.ErrorIs(t, err, ErrNotLeader)
}

// TestSeekEffect: messages that were finished out of order, in flight, deferred, relocated and removed
// by retention.
func TestSeekEffect(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	s := subscribe(t, c)
	r.publishN(20)
	got := c.Pull(s, 12, nil)
	require.Len(t, got, 12)
	for _, i := range []int{0, 1, 2, 5, 6, 9} { // 3, 7, 8 and 11 stay in flight
		require.NoError(t, c.Finish(s, c.of(got[i].Message.Seq, 1)))
	}
	require.NoError(t, c.Requeue(s, c.of(4, 0), 60_000))
	require.NoError(t, c.Requeue(s, c.of(10, 0), 60_000))
	plan := func(o ChannelOptions) SeekEffect {
		e, err := r.PlanSeek("c", o)
		require.NoError(t, err)
		return e
	}
	require.Equal(t, SeekEffect{From: 3, To: 20, Skips: 14}, plan(ChannelOptions{Origin: FromLatest}), "all but the finished ones")
	require.Equal(t, SeekEffect{From: 3, To: 0, Repeats: 6}, plan(ChannelOptions{Origin: FromEarliest}), "the finished ones")
	require.Equal(t, SeekEffect{From: 3, To: 6, Skips: 2, Repeats: 2}, plan(seekTo(6)), "3 in flight and 4 deferred; 6 and 9 were finished")
	require.Equal(t, SeekEffect{From: 3, To: 3, Repeats: 3}, plan(seekTo(3)), "a seek to the same place forgets what was finished above it")

	// Retention removes the messages below 5 but keeps 4, which is deferred, elsewhere.
	require.NoError(t, c.Finish(s, c.of(3, 1)))
	r.relocate(t, 1, 5)
	require.Equal(t, SeekEffect{From: 7, To: 5, Skips: 1, Repeats: 3}, plan(ChannelOptions{Origin: FromEarliest}), "4 cannot be read from the log; 5, 6 and 9 can")
	require.Equal(t, SeekEffect{From: 7, To: 8, Skips: 2, Repeats: 1}, plan(seekTo(8)), "4 and 7; 9")

	inFlight := c.InFlight(s)
	e := r.seekChannel(t, "c", ChannelOptions{Origin: FromEarliest})
	require.Len(t, c.Revoked(s, nil), inFlight, "the subscriber's deliveries are over")
	require.Equal(t, SeekEffect{From: 7, To: 5, Skips: 1, Repeats: 3}, e)
	require.Len(t, pullAll(c, s), 15, "5 to 19")
}

// TestSeekEffectWhileConsumersFinish: every message is either finished by a consumer or counted as
// skipped, also if finishes and the seek meet.
func TestSeekEffectWhileConsumersFinish(t *testing.T) {
	for range 50 {
		r := newRig(Options{})
		c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
		const all = 200
		r.publishN(all)
		s := subscribe(t, c)
		got := c.Pull(s, all, nil)
		require.Len(t, got, all)
		finished := 0
		var done sync.WaitGroup
		done.Go(func() {
			for _, d := range got {
				if c.Finish(s, c.of(d.Message.Seq, 1)) == nil {
					finished++
				}
			}
		})
		e, err := r.SeekChannel(t.Context(), "c", ChannelOptions{Origin: FromLatest})
		require.NoError(t, err)
		done.Wait()
		require.EqualValues(t, all, finished+int(e.Skips), "%+v", e)
	}
}
