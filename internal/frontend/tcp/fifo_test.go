package tcp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// TestAnswersComeWhenTheyAreKnown: places are used again, and room is given back; an answer
// comes in its turn, and never before its put has a fate.
func TestAnswersComeWhenTheyAreKnown(t *testing.T) {
	f := newFifo(10, 100, new(concurrency.InFlight), func() bool { return false })
	none, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		first, err := f.reserve(none, answer{put: "PUB", count: 1}, 60, &reservation{})
		require.NoError(t, err)
		second, err := f.reserve(none, answer{put: "MPUB", count: 1}, 60, &reservation{})
		require.NoError(t, err)
		_, err = f.reserve(none, answer{put: "PUB", count: 1}, 1, &reservation{})
		require.ErrorIs(t, err, context.Canceled, "no room")
		require.Empty(t, f.take(nil, maxAnswers))
		second.Answer(api.PutResult{Err: outcome.ErrInDoubt})
		require.Empty(t, f.take(nil, maxAnswers), "the first has no answer yet")
		first.Answer(api.PutResult{Sequence: 7})
		got := f.take(nil, maxAnswers)
		require.Len(t, got, 2)
		require.EqualValues(t, 7, got[0].fate.Sequence)
		require.Equal(t, outcome.ErrInDoubt, got[1].fate.Err)
		require.True(t, f.mu.answers == 0)
		require.Zero(t, f.mu.memory.Held())
		require.Zero(t, f.mu.bytes)
	}
	for range 2 * maxFreeSlots {
		f.push(answer{})
	}
	f.take(nil, maxFreeSlots-1)
	for _, s := range f.mu.slots[:f.mu.head] {
		require.Nil(t, s)
	}
	require.Len(t, f.mu.slots[f.mu.head:], maxFreeSlots+1)
	f.take(nil, maxAnswers)
	require.Len(t, f.mu.free, maxFreeSlots)

	answered, err := f.reserve(none, answer{put: "PUB", count: 1}, 60, &reservation{})
	require.NoError(t, err)
	unanswered, err := f.reserve(none, answer{put: "PUB", count: 1}, 30, &reservation{})
	require.NoError(t, err)
	answered.Answer(api.PutResult{})
	f.close()
	require.Equal(t, answerBytes+30, f.mu.memory.Held())
	unanswered.Answer(api.PutResult{})
	require.Zero(t, f.mu.memory.Held())
}
