package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// TestTrashIsKeptForItsGrace: until the grace time of a trashed folder has passed, an operator can
// restore its messages, however often the trash is emptied in between.
func TestTrashIsKeptForItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = time.Hour
		mem := vfstest.NewMemory()
		s := reopen(t, testOptions(mem))
		trashed := func() int {
			require.NoError(t, s.EmptyTrash(grace))
			names, err := mem.List("data/trash")
			require.NoError(t, err)
			return len(names)
		}
		for n := range uint16(2) {
			id := ident.Partition{Topic: 7, Number: n}
			_, err := s.Create("orders", id)
			require.NoError(t, err)
			require.NoError(t, s.Trash(id))
			require.EqualValues(t, n+1, trashed())
			time.Sleep(grace / 3)
		}
		time.Sleep(grace/3 - time.Second)
		require.Equal(t, 2, trashed())
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, trashed())
		time.Sleep(grace / 3)
		require.Zero(t, trashed())
	})
}
