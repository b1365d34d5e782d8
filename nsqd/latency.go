package nsqd

import (
	"github.com/beorn7/perks/quantile"

	"github.com/lockstepmq/lockstep/internal/api"
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

// newLatency estimates percentiles, 0–1, over a window in ns that begins at `at`. Without percentiles it returns nil.
func newLatency(percentiles []float64, windowNS, at int64) *latency {
	if len(percentiles) == 0 {
		return nil
	}
	targets := make(map[float64]float64, len(percentiles))
	for _, q := range percentiles {
		targets[q] = quantileError
	}
	return &latency{
		quantiles: percentiles,
		targets:   targets,
		halfNS:    windowNS / 2,
		rotatedAt: at,
		now:       quantile.NewTargeted(targets),
		old:       quantile.NewTargeted(targets),
	}
}

// insert takes one value in ns, at a time in ns.
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

// mergedLatency is the estimate over several channels.
type mergedLatency struct {
	quantiles []float64
	all       *quantile.Stream // nil: there are no measurements
	count     int
}

// add takes the values of one channel; nil: it has none.
func (m *mergedLatency) add(l *latency, at int64) {
	if l == nil {
		return
	}
	if m.all == nil {
		m.quantiles, m.all = l.quantiles, quantile.NewTargeted(l.targets)
	}
	l.rotate(at)
	m.all.Merge(l.now.Samples())
	m.all.Merge(l.old.Samples())
	m.count += l.now.Count() + l.old.Count()
}

// result returns the percentiles in nanoseconds, none (JSON null) if they are not measured.
func (m *mergedLatency) result() api.E2ELatency {
	r := api.E2ELatency{Count: m.count}
	if m.all == nil {
		return r
	}
	for _, q := range m.quantiles {
		r.Percentiles = append(r.Percentiles, api.Percentile{Quantile: q, Value: m.all.Query(q)})
	}
	return r
}
