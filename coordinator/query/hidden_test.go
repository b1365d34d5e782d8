package query

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHiddenNodesComeBack: in their time, and before they take all memory.
func TestHiddenNodesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden := newHiddenNodes(time.Minute)
		hidden.add("orders", "n1")
		time.Sleep(time.Minute - time.Millisecond)
		require.True(t, hidden.hides("orders", "n1"))
		require.False(t, hidden.hides("orders", "n2"))
		time.Sleep(time.Millisecond)
		require.False(t, hidden.hides("orders", "n1"))
		for n := range 2 * maxHidden {
			hidden.add("orders", fmt.Sprint(n))
		}
		require.LessOrEqual(t, len(hidden.until), maxHidden)
		require.True(t, hidden.hides("orders", fmt.Sprint(2*maxHidden-1)))
	})
}
