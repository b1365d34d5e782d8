package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	b := backoff{min: 20 * time.Millisecond, max: 500 * time.Millisecond}
	for range 2 {
		require.Zero(t, b.next(), "the first redial is at once")
		for _, pause := range []time.Duration{20, 40, 80, 160, 320, 500, 500} {
			pause *= time.Millisecond
			got := b.next()
			require.GreaterOrEqual(t, got, pause/2)
			require.LessOrEqual(t, got, pause)
		}
		b.reset()
	}
}

// A peer that dies soon after it came back is found dead as soon as one that had
// been there for long: the pauses of its absence are forgotten, the least is not.
func TestBackoffAfterShortConnection(t *testing.T) {
	b := backoff{min: 20 * time.Millisecond, max: 500 * time.Millisecond}
	for range 10 {
		b.next()
	}
	b.shorten()
	got := b.next()
	require.GreaterOrEqual(t, got, 10*time.Millisecond)
	require.LessOrEqual(t, got, 20*time.Millisecond)
	require.Greater(t, b.next(), 19*time.Millisecond, "and doubled again")
}

func TestComplaintIsNotRepeated(t *testing.T) {
	var c complaint
	require.True(t, c.fresh("one"))
	require.False(t, c.fresh("one"))
	require.True(t, c.fresh("two"))
	c.at = c.at.Add(-time.Hour)
	require.True(t, c.fresh("two"))
}
