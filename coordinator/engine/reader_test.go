package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// TestThrottle: the bytes of any stretch of time are those of the rate, and one read more. Time
// without reads gives no credit.
func TestThrottle(t *testing.T) {
	now := time.Unix(1, 0)
	limit := throttle{rate: 1000}
	require.Zero(t, limit.pause(now, 500))
	require.Equal(t, 500*time.Millisecond, limit.pause(now, 2000))
	require.Equal(t, 2500*time.Millisecond, limit.pause(now, 1))
	now = now.Add(time.Hour)
	require.Zero(t, limit.pause(now, 1000))
	require.Equal(t, time.Second, limit.pause(now, 1000))
	require.Zero(t, limit.pause(now, 0), "a read that found nothing")
	require.Zero(t, new(throttle).pause(now, 1<<40), "no limit")
}

// TestThrottledReaderStops: also while it waits.
func TestThrottledReaderStops(t *testing.T) {
	r := newReader(1)
	r.throttle.pause(time.Now(), 1<<20)
	waited := make(chan bool)
	go func() { waited <- concurrency.Sleep(r.ctx, r.throttle.pause(time.Now(), 1)) }()
	r.stop()
	require.False(t, <-waited)
}
