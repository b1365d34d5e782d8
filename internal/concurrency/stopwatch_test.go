package concurrency

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBusyCountsThePresentOperation: an operation that follows at once begins at zero again.
func TestBusyCountsThePresentOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stopwatch
		require.Zero(t, s.Busy())
		s.Begin()
		require.Positive(t, s.Busy())
		time.Sleep(time.Minute)
		require.Equal(t, time.Minute, s.Busy())
		s.End()
		require.Zero(t, s.Busy())
		s.Begin()
		require.Less(t, s.Busy(), time.Second)
		s.End()
	})
}
