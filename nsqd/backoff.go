package nsqd

// A Backoff gives the delay of a message before its next delivery. It has no state. Any goroutine may use it.

import (
	"math"
	"math/rand/v2"
)

// Backoff is Base × Factor^(attempts−1), at most Max, less a random share of up to Jitter. Base 0:
// no delay.
type Backoff struct {
	BaseMS, MaxMS  int64
	Factor, Jitter float64
}

// DelayMS is the delay in ms after a number of attempts.
func (b Backoff) DelayMS(attempts uint16) int64 {
	if b.BaseMS <= 0 {
		return 0
	}
	ms := float64(b.BaseMS) * math.Pow(max(b.Factor, 1), float64(max(attempts, 1)-1))
	if b.MaxMS > 0 {
		ms = min(ms, float64(b.MaxMS))
	}
	return int64(min(ms, 1<<40) * (1 - min(max(b.Jitter, 0), 1)*rand.Float64()))
}
