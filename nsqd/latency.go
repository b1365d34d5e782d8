package nsqd

import (
	"github.com/beorn7/perks/quantile"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// quantileError is the error allowed in rank. It is NSQ's.
const quantileError = 0.01

// latency estimates percentiles of the time from publish to finish over a window. It has two
// streams, each fed for half of the window, so that old values drop out.
type latency struct {
	quantiles []float64
	targets   map[float64]float64
	halfNS    int64
	rotatedAt int64
	now, old  *quantile.Stream
}

// newLatency returns nil if no percentiles are configured.
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
		rotatedAt: o.Now(),
		now:       quantile.NewTargeted(targets),
		old:       quantile.NewTargeted(targets),
	}
}

func (l *latency) insert(ns, at int64) {
	l.rotate(at)
	l.now.Insert(float64(ns))
}

// rotate drops the values that are older than the window.
func (l *latency) rotate(at int64) {
	for i := 0; i < 2 && at-l.rotatedAt >= l.halfNS; i++ {
		l.now, l.old = l.old, l.now
		l.now.Reset()
		l.rotatedAt += l.halfNS
	}
	if at-l.rotatedAt >= l.halfNS {
		l.rotatedAt = at
	}
}

// merge adds the values of the window to another stream with the same targets.
func (l *latency) merge(all *quantile.Stream, at int64) {
	l.rotate(at)
	all.Merge(l.now.Samples())
	all.Merge(l.old.Samples())
}

// merged is the estimate over several channels.
type merged struct {
	quantiles []float64
	all       *quantile.Stream // nil: there are no measurements
	count     int
}

func (m *merged) add(l *latency, at int64) {
	if l == nil {
		return
	}
	if m.all == nil {
		m.quantiles, m.all = l.quantiles, quantile.NewTargeted(l.targets)
	}
	l.merge(m.all, at)
	m.count += l.now.Count() + l.old.Count()
}

// result returns the percentiles in nanoseconds, none (JSON null) if they are not measured.
func (m *merged) result() edge.E2ELatency {
	r := edge.E2ELatency{Count: m.count}
	if m.all == nil {
		return r
	}
	for _, q := range m.quantiles {
		r.Percentiles = append(r.Percentiles, edge.Percentile{Quantile: q, Value: m.all.Query(q)})
	}
	return r
}
