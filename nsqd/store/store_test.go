package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// TestCloseAnswersAll: submissions before Close are answered, later ones are refused.
func TestCloseAnswersAll(t *testing.T) {
	w, err := newWorld(t, 3, vfstest.NewMemory())
	require.NoError(t, err)
	for range 20 {
		w.step()
	}
	require.NoError(t, w.store.Close())
	require.NoError(t, w.settle())
	w.note()
	w.store.Submit(nil, w, uint64(w.submitted()))
	require.ErrorIs(t, w.settle(), errClosed)
	require.ErrorIs(t, w.store.Close(), errClosed)
	require.ErrorIs(t, w.store.Checkpoint(), errClosed)
}
