package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Partition is the state of one partition at a scrape, as its leader has it.
type Partition struct {
	Topic       string
	Number      uint16
	Leader      string // this broker
	Epoch       uint64
	Replicas    int
	InSync      int
	EndSequence uint64
	LagBytes    int64 // of the slowest replica
	Lag         time.Duration
}

// Partitions sets the source of the partitions led by this broker. Each scrape calls it on the
// scrape's goroutine.
func (r *Recorder) Partitions(source func() []Partition) {
	if r == nil {
		return
	}
	r.partitions.mu.Lock()
	defer r.partitions.mu.Unlock()
	r.partitions.mu.source = source
}

// partitions is the collector for the partitions led by this broker.
type partitions struct {
	limit   int // set before the first scrape
	columns []column[Partition]
	left    described
	mu      struct {
		sync.Mutex
		source func() []Partition
	}
}

func newPartitions(limit int) *partitions {
	left := define("partitions_not_listed", KindGauge)
	return &partitions{limit: limit, left: described{left.desc(), left.valueType()}, columns: []column[Partition]{
		columnOf("partition_epoch", func(p Partition) float64 { return float64(p.Epoch) }),
		columnOf("partition_replicas", func(p Partition) float64 { return float64(p.Replicas) }),
		columnOf("partition_in_sync_replicas", func(p Partition) float64 { return float64(p.InSync) }),
		columnOf("partition_end_sequence", func(p Partition) float64 { return float64(p.EndSequence) }),
		columnOf("partition_lag_bytes", func(p Partition) float64 { return float64(p.LagBytes) }),
		columnOf("partition_lag_seconds", func(p Partition) float64 { return p.Lag.Seconds() }),
	}}
}

// Describe implements prometheus.Collector.
func (c *partitions) Describe(out chan<- *prometheus.Desc) {
	out <- c.left.desc
	for _, x := range c.columns {
		out <- x.desc
	}
}

// Collect implements prometheus.Collector. Beyond the limit it leaves partitions out, those that are
// well in sync first: an operator looks for the others.
func (c *partitions) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	source := c.mu.source
	c.mu.Unlock()
	if source == nil {
		return
	}
	rows := source()
	slices.SortFunc(rows, func(a, b Partition) int {
		return cmp.Or(compareBool(b.unwell(), a.unwell()), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	kept := rows[:min(len(rows), c.limit)]
	out <- prometheus.MustNewConstMetric(c.left.desc, c.left.kind, float64(len(rows)-len(kept)))
	for _, p := range kept {
		number := strconv.Itoa(int(p.Number))
		for _, x := range c.columns {
			out <- prometheus.MustNewConstMetric(x.desc, x.kind, x.value(p), p.Topic, number, p.Leader)
		}
	}
}

// unwell reports whether a replica is not in sync.
func (p Partition) unwell() bool { return p.InSync < p.Replicas }

func compareBool(a, b bool) int { return cmp.Compare(one(a), one(b)) }
