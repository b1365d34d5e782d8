package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatchDelay: the delay grows while a change does not come back, and stays as it was measured.
func TestWatchDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &watchDelay{}
		d.came(5)
		d.wrote(5)
		require.Zero(t, d.delay(), "the watch was faster")
		d.wrote(7)
		time.Sleep(time.Second)
		d.wrote(9)
		require.Equal(t, time.Second, d.delay())
		d.came(6)
		time.Sleep(time.Second)
		require.Equal(t, 2*time.Second, d.delay(), "since the oldest one that is missing")
		d.came(9)
		time.Sleep(time.Hour)
		require.Equal(t, 2*time.Second, d.delay())
	})
}
