package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Partition is the state of one partition at a scrape, as its leader sees it.
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

var partitionNames = []string{
	"partition_epoch", "partition_replicas", "partition_in_sync_replicas", "partition_end_sequence", "partition_lag_bytes", "partition_lag_seconds",
	"partitions_not_listed",
}

// Partitions sets the source of the partitions led by this broker. Each scrape calls it on the scrape's goroutine. Beyond the
// limit partitions are left out, those that are in sync first: an operator looks for the others.
func (r *Recorder) Partitions(source func() []Partition) {
	r.Source(partitionNames, func(emit Emit) {
		rows := source()
		slices.SortFunc(rows, func(a, b Partition) int {
			return cmp.Or(cmp.Compare(one(a.inSync()), one(b.inSync())), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
		})
		listed := rows[:min(len(rows), r.maxPartitions)]
		emit("partitions_not_listed", float64(len(rows)-len(listed)))
		for _, p := range listed {
			labels := []string{p.Topic, strconv.Itoa(int(p.Number)), p.Leader}
			emit("partition_epoch", float64(p.Epoch), labels...)
			emit("partition_replicas", float64(p.Replicas), labels...)
			emit("partition_in_sync_replicas", float64(p.InSync), labels...)
			emit("partition_end_sequence", float64(p.EndSequence), labels...)
			emit("partition_lag_bytes", float64(p.LagBytes), labels...)
			emit("partition_lag_seconds", p.Lag.Seconds(), labels...)
		}
	})
}

func (p Partition) inSync() bool { return p.InSync >= p.Replicas }
