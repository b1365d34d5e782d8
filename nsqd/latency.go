package nsqd

import (
	"github.com/beorn7/perks/quantile"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// quantileError is the error allowed in rank, as NSQ has it.
const quantileError = 0.01

// latency estimates percentiles of the time from put to finish over a window:
// two streams, each fed for half of it, so that old values leave.
type latency struct {
	quantiles []float64
	targets   map[float64]float64
	halfNS    int64
	turnedAt  int64
	now, old  *quantile.Stream
}

// newLatency gives nil if no percentiles are wanted.
func newLatency(o Options) *latency {
	if len(o.Percentiles) == 0 {
		return nil
	}
	targets := make(map[float64]float64, len(o.Percentiles))
	for _, q := range o.Percentiles {
		targets[q] = quantileError
	}
	return &latency{
		quantiles: o.Percentiles,
		targets:   targets,
		halfNS:    o.PercentileWindowMS * nsPerMS / 2,
		turnedAt:  o.Now(),
		now:       quantile.NewTargeted(targets),
		old:       quantile.NewTargeted(targets),
	}
}

func (l *latency) insert(ns, at int64) {
	l.turn(at)
	l.now.Insert(float64(ns))
}

// turn drops what is older than the window.
func (l *latency) turn(at int64) {
	for i := 0; i < 2 && at-l.turnedAt >= l.halfNS; i++ {
		l.now, l.old = l.old, l.now
		l.now.Reset()
		l.turnedAt += l.halfNS
	}
	if at-l.turnedAt >= l.halfNS {
		l.turnedAt = at
	}
}

// result gives the percentiles of the window, in nanoseconds.
func (l *latency) result(at int64) edge.E2ELatency {
	if l == nil {
		return edge.E2ELatency{Percentiles: []edge.Percentile{}}
	}
	l.turn(at)
	all := quantile.NewTargeted(l.targets)
	all.Merge(l.now.Samples())
	all.Merge(l.old.Samples())
	r := edge.E2ELatency{Count: l.now.Count() + l.old.Count()}
	for _, q := range l.quantiles {
		r.Percentiles = append(r.Percentiles, edge.Percentile{Quantile: q, Value: all.Query(q)})
	}
	return r
}
