package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMetadataThatDoesNotAnswerIsLogged: puts continue without the metadata. Without a log
// line an operator would notice only when a leader dies and has no successor.
func TestMetadataThatDoesNotAnswerIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if testing.Short() {
			t.Skip("waits for a registration's time")
		}
		c := newClusterOf(t, cluster{size: 3})
		unheard := func(n string) int64 { return c.nodes[n].Cluster().MetadataUnheardMS }
		require.Zero(t, unheard("n1"))
		c.sessions["n1"].Cut()
		require.Eventually(t, func() bool { return unheard("n1") > 0 }, patience, 50*time.Millisecond)
		require.Zero(t, unheard("n2"))
		c.sessions["n1"].Heal()
		require.Eventually(t, func() bool { return unheard("n1") == 0 }, patience, 50*time.Millisecond)
	})
}
