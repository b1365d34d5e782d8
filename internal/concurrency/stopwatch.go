package concurrency

import (
	"sync/atomic"
	"time"
)

// Stopwatch measures how long the current run of a repeated operation has been under way, such as a
// pass of a core loop or a write of the journal. A watchdog calls Busy regularly, from any goroutine.
// Begin and End are called by one goroutine at a time. They read no clock, which would take 1 % of a
// journal group that is not synced. The zero value is ready.
type Stopwatch struct {
	steps atomic.Uint64 // odd while the operation is under way
	seen  atomic.Pointer[sighting]
}

// sighting is the first time that Busy saw an operation under way.
type sighting struct {
	step uint64
	at   time.Time
}

// Begin notes the start of an operation.
func (s *Stopwatch) Begin() { s.steps.Store(s.steps.Load() | 1) }

// End notes its end.
func (s *Stopwatch) End() { s.steps.Store((s.steps.Load() | 1) + 1) }

// Busy is the time since the first call during the current operation, and always positive; 0 without an operation.
func (s *Stopwatch) Busy() time.Duration {
	step := s.steps.Load()
	if step%2 == 0 {
		return 0
	}
	seen := s.seen.Load()
	if seen == nil || seen.step != step {
		s.seen.CompareAndSwap(seen, &sighting{step, time.Now()})
		return 1
	}
	return max(time.Since(seen.at), 1)
}
