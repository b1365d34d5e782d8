package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Puts go on without the metadata, so nobody would notice before a leader dies and
// nobody takes its place.
func TestMetadataThatDoesNotAnswerIsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a registration's time")
	}
	c := newCluster(t, 3)
	unheard := func(n string) int64 { return c.nodes[n].Cluster().MetadataUnheardMS }
	require.Zero(t, unheard("n1"))
	c.sessions["n1"].Cut()
	require.Eventually(t, func() bool { return unheard("n1") > 0 }, patience, 50*time.Millisecond)
	require.Zero(t, unheard("n2"))
	c.sessions["n1"].Heal()
	require.Eventually(t, func() bool { return unheard("n1") == 0 }, patience, 50*time.Millisecond)
}
