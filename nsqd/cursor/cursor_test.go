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

// TestDeltaOfADeferral: a deferred message is settled at leader and follower, and waits for its deadline at both.
func TestDeltaOfADeferral(t *testing.T) {
	leader, follower := New(10), New(10)
	e := NewEntry(12, 99, 3)
	leader.DeferUntil(e)
	require.True(t, leader.Deferred.Waits(12))
	p, changed := leader.TakeDelta()
	require.True(t, changed)
	require.Equal(t, Progress{Confirmed: 10, Settled: []Span{{12, 13}}, Deferred: []Entry{e}}, p)
	p.Settled = nil
	follower.Apply(p)
	require.True(t, follower.Settled(12))
	require.True(t, follower.Deferred.Waits(12))
}

// spread is a cursor that confirmed 20, finished 25 and 26, and deferred 15 (delivered twice) and 30 (never delivered).
func spread() Cursor {
	c := New(10)
	c.Settle(Span{10, 20})
	c.Settle(Span{25, 27})
	c.DeferUntil(NewEntry(30, 99, 0))
	c.Deferred.Schedule(NewEntry(15, 99, 2))
	c.ClearDelta()
	return c
}

// TestMoves: what a seek skips and repeats, counted by message.
func TestMoves(t *testing.T) {
	for _, row := range []struct {
		to, first         ident.Sequence
		skipped, repeated uint64
	}{
		{to: 20, first: 0, skipped: 1, repeated: 2},  // 15; 25 and 26
		{to: 12, first: 0, skipped: 0, repeated: 9},  // 12–19 without 15, 25 and 26
		{to: 12, first: 14, skipped: 0, repeated: 7}, // 12 and 13 are gone
		{to: 15, first: 0, skipped: 0, repeated: 6},
		{to: 16, first: 0, skipped: 1, repeated: 6},
		{to: 26, first: 0, skipped: 6, repeated: 1}, // 15, 20–24; 26
		{to: 31, first: 0, skipped: 10, repeated: 0},
		{to: 31, first: 22, skipped: 8, repeated: 0},
	} {
		c := spread()
		skipped, repeated := c.Moves(row.to, row.first)
		require.Equal(t, [2]uint64{row.skipped, row.repeated}, [2]uint64{skipped, repeated}, row)
	}
}

// TestSeek drops the settled ranges and the deferred messages.
func TestSeek(t *testing.T) {
	for _, to := range []ident.Sequence{5, 12, 40} {
		c := spread()
		c.Seek(to)
		require.Equal(t, Progress{Confirmed: to, Deferred: c.Deferred.entries()}, c.Full())
		require.Zero(t, c.Deferred.Len())
		require.Equal(t, min(10, to), c.Start())
		require.Equal(t, to, c.End())
		_, changed := c.TakeDelta()
		require.False(t, changed)
		c.Deferred.makeReady(50, 1)
		seq, _ := c.Deferred.Peek()
		require.EqualValues(t, 50, seq)
	}
}

// TestFinishElsewhere: messages that this channel holds or has delivered stay unfinished.
func TestFinishElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		spans   []Span
		limit   ident.Sequence
		held    []ident.Sequence
		settled []Span
		removed []ident.Sequence
		e       Elsewhere
	}{
		"open and finished messages": {spans: []Span{{22, 28}}, limit: 100, settled: []Span{{22, 28}}, e: Elsewhere{Finished: 4}},
		"up to the limit":            {spans: []Span{{22, 28}, {40, 50}}, limit: 24, settled: []Span{{22, 24}}, e: Elsewhere{Finished: 2}},
		"a held one":                 {spans: []Span{{22, 25}}, limit: 100, held: []ident.Sequence{23}, settled: []Span{{22, 23}, {24, 25}}, e: Elsewhere{Finished: 2, Kept: 1}},
		"a held one of others":       {spans: []Span{{22, 24}}, limit: 100, held: []ident.Sequence{24}, settled: []Span{{22, 24}}, e: Elsewhere{Finished: 2}},
		"deferred, never delivered":  {spans: []Span{{30, 31}}, limit: 100, settled: []Span{{30, 31}}, removed: []ident.Sequence{30}, e: Elsewhere{Finished: 1}},
		"deferred, delivered":        {spans: []Span{{14, 16}}, limit: 100, settled: []Span{{14, 16}}, e: Elsewhere{Kept: 1}},
		"deferred, held":             {spans: []Span{{30, 31}}, limit: 100, held: []ident.Sequence{30}, settled: []Span{{30, 31}}, e: Elsewhere{Kept: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := spread()
			made, e := c.FinishElsewhere(row.spans, row.limit, row.held)
			require.Equal(t, row.e, e)
			require.Equal(t, row.settled, made.Settled)
			require.Equal(t, row.removed, made.Finished)
			for _, seq := range row.removed {
				require.False(t, c.Deferred.Has(seq))
			}
			require.Equal(t, 2-len(row.removed), c.Deferred.Len())
		})
	}
}
