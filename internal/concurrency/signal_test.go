package concurrency_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

func TestAwaitLooksAgainAfterEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := concurrency.NewSignal()
		var looks, wanted atomic.Int64
		wanted.Store(3)
		done := make(chan error, 1)
		go func() { done <- s.Await(t.Context(), func() bool { return looks.Add(1) >= wanted.Load() }) }()
		for n := int64(1); n < 3; n++ {
			synctest.Wait()
			require.Equal(t, n, looks.Load())
			require.Empty(t, done)
			s.Notify()
		}
		require.NoError(t, <-done)
	})
}

func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := concurrency.NewSignal()
		never := func() bool { return false }
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 2)
		go func() { done <- s.Await(ctx, never) }()
		synctest.Wait()
		cancel(nil)
		require.ErrorIs(t, <-done, context.Canceled)
		go func() { done <- s.Await(t.Context(), never) }()
		synctest.Wait()
		require.Empty(t, done)
		s.Close()
		s.Close()
		require.ErrorIs(t, <-done, context.Canceled)
		require.ErrorIs(t, s.Await(t.Context(), never), context.Canceled)
		require.NoError(t, s.Await(t.Context(), func() bool { return true }), "what holds is not waited for")
	})
}

func TestEdgeKeepsOneNotification(t *testing.T) {
	e := concurrency.NewEdge()
	e.Notify()
	e.Notify()
	require.Len(t, e, 1)
	<-e
	require.Empty(t, e)
}
