package metrics

import (
	"iter"
	"runtime"
	"slices"
)

// Memory has the figures of the heap, as /stats and statsd show them.
type Memory struct {
	HeapObjects       uint64 `json:"heap_objects"`
	HeapIdleBytes     uint64 `json:"heap_idle_bytes"`
	HeapInUseBytes    uint64 `json:"heap_in_use_bytes"`
	HeapReleasedBytes uint64 `json:"heap_released_bytes"`
	GCPauseUsec100    uint64 `json:"gc_pause_usec_100"`
	GCPauseUsec99     uint64 `json:"gc_pause_usec_99"`
	GCPauseUsec95     uint64 `json:"gc_pause_usec_95"`
	NextGCBytes       uint64 `json:"next_gc_bytes"`
	GCTotalRuns       uint32 `json:"gc_total_runs"`
}

// ReadMemory measures the heap. It stops the world for some microseconds.
func ReadMemory() Memory {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	pauses := slices.Clone(m.PauseNs[:min(int(m.NumGC), len(m.PauseNs))])
	slices.Sort(pauses)
	return Memory{
		HeapObjects: m.HeapObjects, HeapIdleBytes: m.HeapIdle, HeapInUseBytes: m.HeapInuse, HeapReleasedBytes: m.HeapReleased,
		GCPauseUsec100: percentile(pauses, 100) / 1000, GCPauseUsec99: percentile(pauses, 99) / 1000, GCPauseUsec95: percentile(pauses, 95) / 1000,
		NextGCBytes: m.NextGC, GCTotalRuns: m.NumGC,
	}
}

// percentile returns a percentile of sorted values by the nearest rank.
func percentile(sorted []uint64, percent int) uint64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Gauges are all values except the number of collections, in the order and with the names of /stats and statsd.
func (m *Memory) Gauges() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		_ = yield("heap_objects", m.HeapObjects) && yield("heap_idle_bytes", m.HeapIdleBytes) && yield("heap_in_use_bytes", m.HeapInUseBytes) &&
			yield("heap_released_bytes", m.HeapReleasedBytes) && yield("gc_pause_usec_100", m.GCPauseUsec100) &&
			yield("gc_pause_usec_99", m.GCPauseUsec99) && yield("gc_pause_usec_95", m.GCPauseUsec95) && yield("next_gc_bytes", m.NextGCBytes)
	}
}
