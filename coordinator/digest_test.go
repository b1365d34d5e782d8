package coordinator_test

import (
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/stretchr/testify/require"
)

// TestDigestReadsTheDisk: a message decays on the disk while the broker still has it in
// memory. The digest is of the bytes on the disk, and the copy is repaired.
func TestDigestReadsTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.do("n1", "topic.create", "orders", "", nil)
		const n = 200
		for i := range n {
			require.NoError(t, c.put("n1", "orders", numbered(i)))
		}
		c.whole("orders")
		for name := range c.nodes {
			c.decay(name, 30)
			_, err := c.nodes[name].Digest(api.DigestRequest{Topic: "orders"})
			require.ErrorContains(t, err, "damaged", "%s", name)
			c.whole("orders")
		}
	})
}
