package cost

import (
	"math"
	"slices"
)

// allowed is the ratio of two costs above which the new one is too high.
const allowed = 1.04

// The error probabilities of the two answers about a median. A wrong failure stops everybody's work, and the costs are
// compared with the same base again after each further change.
const (
	wronglyFailed   = 0.001
	wronglyAccepted = 0.05
)

// countRounds is the number of rounds after which a count that is too high is believed.
const countRounds = 5

// verdict is the answer about one figure.
type verdict uint8

const (
	undecided verdict = iota
	accepted
	regressed
)

// judgeTime decides on the ratios of processor times, one a turn.
func judgeTime(ratios []float64) verdict {
	if low, _ := interval(ratios, wronglyFailed); low > allowed {
		return regressed
	}
	if _, high := interval(ratios, wronglyAccepted); high <= allowed {
		return accepted
	}
	return undecided
}

// judgeCount decides on the ratios of a count, one a round.
func judgeCount(ratios []float64) verdict {
	switch {
	case len(ratios) == 0:
		return undecided
	case median(ratios) <= allowed:
		return accepted
	case len(ratios) >= countRounds:
		return regressed
	}
	return undecided
}

// interval returns the bounds of the median, each of which is wrong with at most the given probability: the order
// statistics of the sign test, which assumes nothing about the distribution. With too few values they are infinite.
func interval(values []float64, wrong float64) (low, high float64) {
	n := len(values)
	outside := 0 // values beyond each bound
	for chance := math.Ldexp(1, -n); chance <= wrong && outside < n/2; outside++ {
		chance += math.Exp(logChoose(n, outside+1) - float64(n)*math.Ln2)
	}
	if outside == 0 {
		return math.Inf(-1), math.Inf(1)
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[outside-1], sorted[n-outside]
}

// logChoose returns the logarithm of the number of ways to choose k of n.
func logChoose(n, k int) float64 {
	log := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
	return log(n) - log(k) - log(n-k)
}

// median returns the median, NaN of no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
