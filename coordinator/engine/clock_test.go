package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClockThatIsSetBack: the fence that all partitions share goes with it, and their
// deadlines are looked at.
func TestClockThatIsSetBack(t *testing.T) {
	a := newAlone(t)
	now := time.Now()
	a.e.fence.Store(now.UnixNano())
	a.e.setBack(time.Hour)
	require.Equal(t, now.Add(-time.Hour).UnixNano(), a.e.fence.Load())
	require.Len(t, a.e.deadlines.take(0, nil), 1)
}
