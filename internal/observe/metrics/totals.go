package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Totals are counts of this broker since its start. The difference of two Totals gives the rates and percentiles in between.
type Totals struct {
	Messages, Bytes float64 // committed in partitions led here
	Delivered       float64 // to clients of this broker
	Put, Sync       Distribution
	Refused         map[string]float64 // puts of this broker's clients that were not answered OK, by the answer
	Limited         map[string]float64 // clients that a limit has refused or cut off, by the limit
}

// Distribution counts durations by size: bucket i has the durations above Upper[i-1] and up to Upper[i] seconds; Count
// has one more bucket for all others.
type Distribution struct {
	Upper []float64
	Count []uint64
}

// Totals reads the counters; zero on a nil Recorder.
func (r *Recorder) Totals() Totals {
	if r == nil {
		return Totals{}
	}
	refused := map[string]float64{}
	for label, c := range r.refused {
		if n := countOf(c); n > 0 {
			refused[label] = n
		}
	}
	limited := map[string]float64{}
	for i, label := range refusals {
		if n := countOf(r.count[RefusedTCPConnections+Count(i)]); n > 0 {
			limited[label] = n
		}
	}
	return Totals{
		Limited: limited, Refused: refused, Messages: countOf(r.count[messagesPut]), Bytes: countOf(r.count[bytesPut]), Delivered: countOf(r.count[delivered]),
		Put: distributionOf(r.timing[StageCommit]), Sync: distributionOf(r.timing[JournalSync]),
	}
}

func countOf(c prometheus.Counter) float64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0 // it is a counter
	}
	return m.GetCounter().GetValue()
}

func distributionOf(o prometheus.Observer) (d Distribution) {
	var m dto.Metric
	h, ok := o.(prometheus.Metric)
	if !ok || h.Write(&m) != nil {
		return d // it is a histogram
	}
	below := uint64(0)
	for _, b := range m.GetHistogram().GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		d.Upper = append(d.Upper, b.GetUpperBound())
		d.Count = append(d.Count, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	d.Count = append(d.Count, m.GetHistogram().GetSampleCount()-below)
	return d
}

// Quantile is the duration in seconds below which the given fraction of the durations since an earlier Distribution
// lies; false if there were none. Durations are assumed to be spread evenly within a bucket. Beyond the last bucket the
// result is its bound.
func (d Distribution) Quantile(since Distribution, q float64) (seconds float64, ok bool) {
	total := uint64(0)
	between := make([]uint64, len(d.Count))
	for i, n := range d.Count {
		between[i] = n
		if i < len(since.Count) {
			between[i] -= min(n, since.Count[i])
		}
		total += between[i]
	}
	if total == 0 {
		return 0, false
	}
	rank, seen, lower := q*float64(total), 0.0, 0.0
	for i, upper := range d.Upper {
		n := float64(between[i])
		if n > 0 && seen+n >= rank {
			return lower + (upper-lower)*(rank-seen)/n, true
		}
		seen, lower = seen+n, upper
	}
	return lower, true
}
