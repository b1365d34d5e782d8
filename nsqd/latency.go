package nsqd

import (
	"github.com/beorn7/perks/quantile"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Latency and Works measure what the channels of a broker do: the latencies from publish to finish, and the counts
// of requeues, timeouts and filtered messages. They are shown and decide nothing.
//
// It has no partitions or channels, only the names under which their counts are kept.
//
// Invariants
//
//  1. Counts never fall while their channel exists, whichever broker leads and however often the Channel is
//     created again from a snapshot.
//  2. A Latency shows no value that is older than its window.
//
// Locks and goroutines
//
// It starts no goroutine. Works has a lock, which is a leaf; Verbs are atomic. A Latency is guarded by the lock
// of its channel, a Merged belongs to one goroutine.

// quantileError is the error allowed in rank. It is NSQ's.
const quantileError = 0.01

// Latency estimates percentiles of the time from publish to finish over a window. It has two
// streams, each fed for half of the window, so that old values drop out.
type Latency struct {
	quantiles []float64
	targets   map[float64]float64
	halfNS    int64
	rotatedAt int64
	now, old  *quantile.Stream
}

// NewLatency makes the estimate of some percentiles, 0–1, over a window in ns that begins at `at`. Without
// percentiles it returns nil.
func NewLatency(percentiles []float64, windowNS, at int64) *Latency {
	if len(percentiles) == 0 {
		return nil
	}
	targets := make(map[float64]float64, len(percentiles))
	for _, q := range percentiles {
		targets[q] = quantileError
	}
	return &Latency{
		quantiles: percentiles,
		targets:   targets,
		halfNS:    windowNS / 2,
		rotatedAt: at,
		now:       quantile.NewTargeted(targets),
		old:       quantile.NewTargeted(targets),
	}
}

// Insert takes one value in ns, at a time in ns.
func (l *Latency) Insert(ns, at int64) {
	l.rotate(at)
	l.now.Insert(float64(ns))
}

// rotate drops the values that are older than the window.
func (l *Latency) rotate(at int64) {
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
func (l *Latency) merge(all *quantile.Stream, at int64) {
	l.rotate(at)
	all.Merge(l.now.Samples())
	all.Merge(l.old.Samples())
}

// Merged is the estimate over several channels.
type Merged struct {
	quantiles []float64
	all       *quantile.Stream // nil: there are no measurements
	count     int
}

// Add takes the values of one channel; nil: it has none.
func (m *Merged) Add(l *Latency, at int64) {
	if l == nil {
		return
	}
	if m.all == nil {
		m.quantiles, m.all = l.quantiles, quantile.NewTargeted(l.targets)
	}
	l.merge(m.all, at)
	m.count += l.now.Count() + l.old.Count()
}

// Result returns the percentiles in nanoseconds, none (JSON null) if they are not measured.
func (m *Merged) Result() api.E2ELatency {
	r := api.E2ELatency{Count: m.count}
	if m.all == nil {
		return r
	}
	for _, q := range m.quantiles {
		r.Percentiles = append(r.Percentiles, api.Percentile{Quantile: q, Value: m.all.Query(q)})
	}
	return r
}
