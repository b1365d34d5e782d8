package coordinator_test

import (
	"testing"
	"testing/synctest"

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
		c := newCluster(t, 3)
		unheard := func(n string) int64 { return c.nodes[n].Cluster().MetadataUnheardMS }
		require.Zero(t, unheard("n1"))
		c.sessions["n1"].Cut()
		c.eventually(func() bool { return unheard("n1") > 0 }, "the silence is not counted")
		require.Zero(t, unheard("n2"))
		c.sessions["n1"].Heal()
		c.eventually(func() bool { return unheard("n1") == 0 }, "it is not heard again")
	})
}
