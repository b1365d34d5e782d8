package limits

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRates: one second's worth passes at once, then the rate holds, of messages and of bytes.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, size := range map[string]struct{ messages, bytes int }{"messages": {1, 1}, "bytes": {0, 100}} {
			var s Rates[string]
			l := Rate{Messages: 10, Bytes: 1000}
			passed := 0
			for range 100 { // 10 s, a burst of ten puts every 0.1 s would be 1,000
				for range 10 {
					if s.Allow(name, l, size.messages, size.bytes) {
						passed++
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
			require.InDelta(t, 10+99, passed, 1, name)
		}
	})
}

// TestARefusedPutTakesNothing: a put that the bytes refuse costs no message.
func TestARefusedPutTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Rates[string]
		l := Rate{Messages: 2, Bytes: 100}
		require.True(t, s.Allow("k", l, 1, 100))
		for range 10 {
			require.False(t, s.Allow("k", l, 1, 100))
		}
		require.True(t, s.Allow("k", l, 1, 0), "the second message of this second")
		require.False(t, s.Allow("k", l, 1, 0))
	})
}

// TestALargePutLeavesADebt: it passes a full bucket, and the next one waits until it is paid.
func TestALargePutLeavesADebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Rates[string]
		l := Rate{Bytes: 100}
		require.True(t, s.Allow("k", l, 1, 1050))
		time.Sleep(10 * time.Second)
		require.False(t, s.Allow("k", l, 1, 100), "0.5 s early")
		time.Sleep(510 * time.Millisecond)
		require.True(t, s.Allow("k", l, 1, 100))
		require.False(t, s.Allow("k", l, 1, 1))
	})
}

// TestALimitThatChanges holds from the next put on; keys do not share buckets.
func TestALimitThatChanges(t *testing.T) {
	var s Rates[int]
	require.True(t, s.Allow(1, Rate{Messages: 1}, 1, 1))
	require.False(t, s.Allow(1, Rate{Messages: 1}, 1, 1))
	require.True(t, s.Allow(2, Rate{Messages: 1}, 1, 1))
	require.True(t, s.Allow(1, Rate{Messages: 2}, 1, 1))
	require.True(t, s.Allow(1, Rate{}, 1<<30, 1<<40))
}

// TestNoLimitCostsNothing is invariant 2.
func TestNoLimitCostsNothing(t *testing.T) {
	var s Rates[string]
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Allow("k", Rate{}, 1, 100) }))
	require.Nil(t, s.of)
}

// TestTheMapIsBounded is invariant 3.
func TestTheMapIsBounded(t *testing.T) {
	var s Rates[int]
	for i := range maxEntries + 10 {
		s.Allow(i, Rate{Messages: 1}, 1, 1)
	}
	require.LessOrEqual(t, len(s.of), maxEntries)
}

func BenchmarkAllow(b *testing.B) {
	for name, l := range map[string]Rate{"none": {}, "set": {Messages: 1 << 30, Bytes: 1 << 39}} {
		b.Run(name, func(b *testing.B) {
			var s Rates[string]
			b.ReportAllocs()
			for b.Loop() {
				s.Allow("k", l, 1, 100)
			}
		})
	}
}
