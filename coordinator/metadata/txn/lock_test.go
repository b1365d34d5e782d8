package txn

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestHoldersOfANameGoOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeyedLock()
		ctx, cancel := context.WithCancel(t.Context())
		unlock, err := k.Lock(ctx, "orders")
		require.NoError(t, err)
		other, err := k.Lock(ctx, "other")
		require.NoError(t, err, "of another name")
		other()
		entered := make(chan func(), 2)
		for range 2 {
			go func() {
				if unlock, err := k.Lock(t.Context(), "orders"); err == nil {
					entered <- unlock
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, entered)
		gone := make(chan error)
		go func() { _, err := k.Lock(ctx, "orders"); gone <- err }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.Equal(t, 3, k.held["orders"].callers)
		for range 2 {
			unlock()
			synctest.Wait()
			require.Len(t, entered, 1, "the next one")
			unlock = <-entered
		}
		unlock()
		require.Empty(t, k.held)
	})
}
