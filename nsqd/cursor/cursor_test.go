package cursor

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// change makes one drawn change as a leader makes it.
func change(t *rapid.T, c *Cursor) {
	seq := ident.Sequence(rapid.IntRange(10, 40).Draw(t, "seq"))
	switch rapid.IntRange(0, 3).Draw(t, "op") {
	case 0:
		c.Finish(seq)
	case 1:
		if !c.Settled(seq) || c.Deferred.Has(seq) {
			c.DeferUntil(NewEntry(seq, rapid.Int64Range(1, 99).Draw(t, "deadline"), 1))
		}
	case 2:
		if !c.Settled(seq) || c.Deferred.Has(seq) {
			c.Requeue(seq, 2)
		}
	default:
		c.Settle(Span{From: seq, To: seq + ident.Sequence(rapid.IntRange(0, 5).Draw(t, "n"))})
	}
}

// sorted is the state without the order of the heap, which depends on the history.
func sorted(c *Cursor) Progress {
	p := c.Full()
	slices.SortFunc(p.Deferred, func(x, y Entry) int { return cmp.Compare(x.Packed, y.Packed) })
	return p
}

// TestDeltasAppliedAgainEndInTheState: a follower that applies all deltas, and then a suffix of them
// again, has the leader's state.
func TestDeltasAppliedAgainEndInTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leader, follower := New(10), New(10)
		var deltas []Progress
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			change(t, &leader)
			if rapid.Bool().Draw(t, "flush") { // else the next delta carries this change too
				if p, ok := leader.TakeDelta(); ok {
					deltas = append(deltas, p)
				}
			}
		}
		if p, ok := leader.TakeDelta(); ok {
			deltas = append(deltas, p)
		}
		for _, p := range deltas {
			follower.Apply(p)
		}
		require.Equal(t, sorted(&leader), sorted(&follower))
		for _, p := range deltas[rapid.IntRange(0, len(deltas)).Draw(t, "again from"):] {
			follower.Apply(p)
		}
		require.Equal(t, sorted(&leader), sorted(&follower))

		restored := New(leader.Confirmed())
		restored.Restore(leader.Start(), leader.Full())
		require.Equal(t, sorted(&leader), sorted(&restored))
		require.Equal(t, leader.SettledCount(), restored.SettledCount())
		_, changed := restored.TakeDelta()
		require.False(t, changed)
	})
}

// TestUnreplicatedCursorCollectsNothing: nothing takes the deltas of an ephemeral channel, so they
// must not grow.
func TestUnreplicatedCursorCollectsNothing(t *testing.T) {
	c := New(10)
	c.Unreplicated = true
	c.Finish(20)
	c.Requeue(22, 1)
	c.DeferUntil(NewEntry(24, 5, 1))
	c.Finish(22)
	p, _ := c.TakeDelta()
	require.Equal(t, Progress{Confirmed: 10}, p)
	require.Len(t, c.Full().Settled, 3)
}

// TestOnlySeekMovesBack: progress of an older state changes nothing.
func TestOnlySeekMovesBack(t *testing.T) {
	c := New(10)
	c.Settle(Span{From: 10, To: 30})
	c.Apply(Progress{Confirmed: 20, Settled: []Span{{From: 22, To: 25}}})
	require.EqualValues(t, 30, c.Confirmed())
	require.EqualValues(t, 30, c.Unsettled(12))
	c.Seek(5)
	require.EqualValues(t, 5, c.Confirmed())
	require.EqualValues(t, 5, c.Start())
	require.EqualValues(t, 12, c.Unsettled(12))
}
