package cost

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInterval: the ranks of the sign test, as tables of the binomial distribution have them.
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		n     int
		wrong float64
		rank  int // of the lower bound, from 1; 0: none
	}{
		{0, 0.05, 0}, {4, 0.05, 0}, {5, 0.05, 1}, {8, 0.05, 2}, {9, 0.001, 0}, {10, 0.001, 1}, {20, 0.05, 6}, {100, 0.05, 42}, {100, 0.001, 35},
	} {
		values := make([]float64, c.n)
		for i := range values {
			values[i] = float64(c.n - i) // 1 to n, in no order that matters
		}
		low, high := interval(values, c.wrong)
		if c.rank == 0 {
			require.True(t, math.IsInf(low, -1) && math.IsInf(high, 1), c)
			continue
		}
		require.Equal(t, float64(c.rank), low, c)
		require.Equal(t, float64(c.n+1-c.rank), high, c)
	}
}

func TestJudgeCount(t *testing.T) {
	require.Equal(t, undecided, judgeCount(nil))
	require.Equal(t, accepted, judgeCount([]float64{1.04}))
	require.Equal(t, undecided, judgeCount([]float64{1.05}))
	require.Equal(t, undecided, judgeCount([]float64{1.05, 1.06}))
	require.Equal(t, accepted, judgeCount([]float64{1.05, 1.01, 1.02}))
	require.Equal(t, undecided, judgeCount([]float64{1.05, 1.01, 1.06}))
	require.Equal(t, regressed, judgeCount([]float64{1.05, 1.01, 1.06, 1.02, 1.07}))
}

// TestJudgeTime: turns on a machine as noisy as one with other work on every processor, judged after each round.
// Without a change no row fails; with 12 % nearly all do.
func TestJudgeTime(t *testing.T) {
	const noise, turns, rounds, rows = 0.09, 8, 60, 500
	random := rand.New(rand.NewPCG(1, 2))
	play := func(change float64) (count [3]int) {
		for range rows {
			var ratios []float64
			answer := undecided
			for round := 0; round < rounds && answer == undecided; round++ {
				for range turns {
					ratios = append(ratios, change*math.Exp(noise*random.NormFloat64()))
				}
				answer = judgeTime(ratios)
			}
			count[answer]++
		}
		return count
	}
	same, little, much := play(1), play(1.06), play(1.12)
	require.Zero(t, same[regressed])
	require.Greater(t, same[accepted], rows*99/100)
	require.Less(t, little[accepted], rows/20)
	require.Greater(t, little[regressed], rows/2)
	require.Greater(t, much[regressed], rows*99/100)
}

// TestBacklogIsATurn: the clients that fill a backlog publish what the consumers of a turn finish.
func TestBacklogIsATurn(t *testing.T) {
	for _, r := range rows {
		if r.consume {
			require.Equal(t, turnBursts*r.messages(), r.backlog().messages(), r.name)
		}
	}
}
