package budget

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// TestReserve: reservations wait for each other in their order, and small bodies never wait.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4 * mib)
		require.True(t, b.Reserve(t.Context(), 3*mib))
		var order []string
		reserve := func(name string, bytes int) {
			go func() {
				if b.Reserve(t.Context(), bytes) {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		reserve("large", 100*mib) // the whole budget
		reserve("small", mib)
		require.Empty(t, order, "the small one fits, and is behind the large one")
		require.True(t, b.Reserve(t.Context(), Free), "a body without a reservation")
		b.Release(Free)
		require.Equal(t, int64(3*mib), b.Used())
		b.Release(3 * mib)
		synctest.Wait()
		require.Equal(t, []string{"large"}, order)
		require.Equal(t, int64(4*mib), b.Used())
		b.Release(100 * mib)
		synctest.Wait()
		require.Equal(t, []string{"large", "small"}, order)
		b.Release(mib)
		require.Zero(t, b.Used())
	})
}

// TestReserveGivesUp: a reservation that gave up holds nothing, and holds up no other.
func TestReserveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4 * mib)
		require.True(t, b.Reserve(t.Context(), 3*mib))
		began := time.Now()
		behind := make(chan bool)
		go func() {
			time.Sleep(MaxWait / 2)
			behind <- b.Reserve(t.Context(), mib)
		}()
		require.False(t, b.Reserve(t.Context(), 2*mib))
		require.Equal(t, MaxWait, time.Since(began))
		require.True(t, <-behind)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, b.Reserve(ctx, 2*mib))
		b.Release(3 * mib)
		b.Release(mib)
		require.Zero(t, b.Used())
		require.Zero(t, b.mu.waiting.Len())
	})
}

// TestNoBudget: without a budget nothing waits.
func TestNoBudget(t *testing.T) {
	var b *Budget
	require.True(t, b.Reserve(t.Context(), 1<<40))
	b.Release(1 << 40)
	require.Zero(t, b.Used())
}
