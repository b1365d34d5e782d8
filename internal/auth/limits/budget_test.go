package limits

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// TestReserve: reservations of one share wait for each other in their order, and small bodies never wait.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4 * mib)
		s := b.Share("a")
		require.True(t, s.Reserve(t.Context(), Bodies, mib/2))
		var order []string
		reserve := func(name string, bytes int) {
			go func() {
				if s.Reserve(t.Context(), Bodies, bytes) {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		reserve("large", 100*mib) // the whole budget
		reserve("small", mib/4)
		require.Empty(t, order, "the small one fits, and is behind the large one")
		require.False(t, s.Try(Replies, mib/4), "so would this one be")
		require.True(t, s.Reserve(t.Context(), Bodies, Free), "a body without a reservation")
		require.Equal(t, int64(mib/2), b.Held(Bodies))
		s.Release(Bodies, Free)
		require.Equal(t, int64(mib/2), b.Used())
		s.Release(Bodies, mib/2)
		synctest.Wait()
		require.Equal(t, []string{"large"}, order)
		require.Equal(t, int64(4*mib), b.Used())
		s.Release(Bodies, 100*mib)
		synctest.Wait()
		require.Equal(t, []string{"large", "small"}, order)
		s.Release(Bodies, mib/4)
		require.Zero(t, b.Used())
		require.Empty(t, b.mu.owners)
	})
}

// TestReserveGivesUp: a reservation that gave up holds nothing, and holds up no other.
func TestReserveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4 * mib)
		s := b.Share("a")
		require.True(t, s.Reserve(t.Context(), Bodies, mib/2))
		began := time.Now()
		behind := make(chan bool)
		go func() {
			time.Sleep(MaxWait / 2)
			behind <- s.Reserve(t.Context(), Bodies, mib/2)
		}()
		synctest.Wait()
		require.False(t, s.Reserve(t.Context(), Bodies, 2*mib))
		require.Equal(t, MaxWait, time.Since(began))
		require.True(t, <-behind)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, s.Reserve(ctx, Bodies, 2*mib))
		s.Release(Bodies, mib/2)
		s.Release(Bodies, mib/2)
		require.Zero(t, b.Used())
		require.Empty(t, b.mu.queue)
		require.Empty(t, b.mu.owners)
	})
}

// TestSharesLeaveRoom: however much each of several clients asks for, the next one gets a part, and at once.
func TestSharesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 64 * mib
		b := New(size)
		ctx, cancel := context.WithCancel(t.Context())
		for greedy := range 10 {
			free := size - b.Used()
			s := b.Share(fmt.Sprint(greedy))
			for s.Try(Bodies, Free+1) {
				require.LessOrEqual(t, b.Used(), int64(size))
			}
			require.InDelta(t, free/3, s.Used(), 2*Free, "its part")
			go s.Reserve(ctx, Bodies, size) // waits, and nobody waits for it
			synctest.Wait()
			began := time.Now()
			left := int(size - b.Used())
			next := b.Share("next")
			require.True(t, next.Reserve(ctx, Bodies, left), "after %d", greedy)
			require.Zero(t, time.Since(began))
			next.Release(Bodies, left)
		}
		cancel()
		synctest.Wait()
	})
}

// TestTally: a tally reserves what it holds beyond Free, in few steps, and gives all back.
func TestTally(t *testing.T) {
	b := New(4 * mib)
	tally := b.Share("a").Tally(Deliveries)
	for range Free >> 10 {
		require.True(t, tally.Take(1<<10))
	}
	require.Zero(t, b.Used())
	n := Free >> 10
	for ; tally.Take(1 << 10); n++ {
		require.LessOrEqual(t, int64(tally.Held()), b.Used()+Free)
	}
	require.InDelta(t, (4*mib/3+Free)>>10, n, 1, "its share: a third")
	require.Equal(t, b.Used(), b.Held(Deliveries))
	tally.Move(b.Share("b").Tally(Answers))
	require.False(t, tally.Take(1<<10), "it is still the first one's")
	other := b.Share("b").Tally(Deliveries)
	require.True(t, other.Take(mib))
	require.False(t, other.Take(mib))
	tally.Force(mib)
	tally.Give(mib)
	for ; n > 0; n-- {
		tally.Give(1 << 10)
		require.GreaterOrEqual(t, b.Used(), int64(tally.Held()-Free))
	}
	other.Give(mib)
	require.Zero(t, b.Used())
	require.Zero(t, b.Held(Deliveries))
	require.True(t, tally.Take(100*mib), "one thing that is larger than the budget")
	require.Equal(t, int64(4*mib), b.Used())
	require.False(t, tally.Take(1))
	tally.Give(100 * mib)
	require.Zero(t, b.Used())
	tally.Move(b.Share("b").Tally(Answers))
	require.True(t, tally.Take(mib))
	require.Equal(t, int64(mib-Free), b.Share("b").Used())
}

// TestNoBudget: without a budget nothing waits.
func TestNoBudget(t *testing.T) {
	var b *Budget
	s := b.Share("a")
	require.True(t, s.Reserve(t.Context(), Bodies, 1<<40))
	s.Release(Bodies, 1<<40)
	require.True(t, s.Try(Bodies, 1<<40))
	require.Zero(t, b.Used())
	require.Zero(t, b.Held(Bodies))
	require.Zero(t, s.Used())
	tally := s.Tally(Deliveries)
	require.True(t, tally.Take(1<<40))
	tally.Give(1 << 40)
	require.Zero(t, (&Tally{}).Held())
}

// Used is the number of bytes that the share has reserved.
func (s Share) Used() int64 {
	if s.b == nil {
		return 0
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if o := s.b.mu.owners[s.owner]; o != nil {
		return o.used
	}
	return 0
}
