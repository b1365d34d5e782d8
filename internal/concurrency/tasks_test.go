package concurrency_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGroupEndsItsGoroutines(t *testing.T) {
	g := concurrency.NewGroup()
	var ended atomic.Int64
	for range 3 {
		g.Go(func(ctx context.Context) { <-ctx.Done(); ended.Add(1) })
	}
	require.NoError(t, g.Context().Err())
	require.True(t, g.Close())
	require.False(t, g.Close())
	g.Wait()
	require.EqualValues(t, 3, ended.Load())
	g.Go(func(context.Context) { ended.Add(1) })
	g.Wait()
	require.EqualValues(t, 3, ended.Load(), "a goroutine after the end")
}

func TestEachKeepsItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, calls atomic.Int64
		began := time.Now()
		concurrency.Each(10, 4, func(int) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			calls.Add(1)
		})
		require.EqualValues(t, 10, calls.Load())
		require.EqualValues(t, 4, most.Load())
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestEveryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second+time.Millisecond)
		defer cancel()
		calls := 0
		concurrency.Every(ctx, time.Second, func() { calls++ })
		require.Equal(t, 3, calls)
	})
}
