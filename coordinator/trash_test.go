package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFilesOfADeletedTopicAreKept: for the grace time an operator can undo the delete of a
// topic by hand; after it the disk gets its space back.
func TestFilesOfADeletedTopicAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, cluster{size: 1, trashGrace: time.Minute})
		require.NoError(t, c.put("n1", "orders", "m0"))
		c.do("n1", "topic.delete", "orders", "", nil)
		c.eventually(func() bool { return len(c.trash("n1")) == 1 }, "the files stay where they are")
		time.Sleep(50 * time.Second)
		require.Len(t, c.trash("n1"), 1)
		c.eventually(func() bool { return len(c.trash("n1")) == 0 }, "the files stay in the trash")
	})
}
