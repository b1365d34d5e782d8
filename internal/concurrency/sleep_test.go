package concurrency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

func TestForEndsAtItsDurationOrWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.True(t, concurrency.Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, concurrency.Sleep(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Second, time.Since(begun))
	})
}

func TestUntilEndsWithAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{})
		begun := time.Now()
		require.True(t, concurrency.SleepUntil(t.Context(), changed, time.Minute))
		require.Equal(t, time.Minute, time.Since(begun))
		close(changed)
		require.True(t, concurrency.SleepUntil(t.Context(), changed, time.Minute))
		require.Equal(t, time.Minute, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, concurrency.SleepUntil(ctx, nil, time.Minute))
		require.Equal(t, time.Minute+time.Second, time.Since(begun))
	})
}
