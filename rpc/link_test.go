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

func TestComplaintIsNotRepeated(t *testing.T) {
	var c complaint
	require.True(t, c.fresh("one"))
	require.False(t, c.fresh("one"))
	require.True(t, c.fresh("two"))
	c.at = c.at.Add(-time.Hour)
	require.True(t, c.fresh("two"))
}
