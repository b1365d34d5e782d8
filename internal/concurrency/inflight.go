package concurrency

import (
	"sync/atomic"
	"time"
)

// remembered is the number of operations after contention that count as contended although they find
// the count at zero: the first operation of a burst also finds it at zero.
const remembered = 16

// InFlight counts the operations in progress (puts, answers) and reports whether an operation is uncontended: no other
// is in progress, and none was recently. An uncontended operation should run inline, because waking another goroutine
// costs more than the work itself. Contended operations should go to one goroutine that batches them. The zero value is
// ready; any goroutine may use it.
type InFlight struct {
	n         atomic.Int64
	contended atomic.Int64 // how many more operations count as contended
}

// Enter notes that one more operation is in progress, and reports whether it is uncontended.
func (c *InFlight) Enter() bool {
	if c.n.Add(1) > 1 {
		if c.contended.Load() != remembered {
			c.contended.Store(remembered)
		}
		return false
	}
	if c.contended.Load() > 0 {
		c.contended.Add(-1)
		return false
	}
	return true
}

// Leave notes the end of one operation, and reports whether it was uncontended.
func (c *InFlight) Leave() bool { return c.n.Add(-1) == 0 && c.contended.Load() <= 0 }

// N is the number of operations in progress.
func (c *InFlight) N() int64 { return c.n.Load() }

// Stopwatch measures how long the current run of a repeated operation has been running, such as a pass of a core loop
// or a write of the journal. A watchdog calls Busy regularly, from any goroutine. Begin and End are called by one
// goroutine at a time. They read no clock, which would take 1 % of a journal group that is not synced. The zero value
// is ready.
type Stopwatch struct {
	steps atomic.Uint64 // odd while the operation is running
	seen  atomic.Pointer[sighting]
}

// sighting is the first time that Busy saw an operation running.
type sighting struct {
	step uint64
	at   time.Time
}

// Begin notes the start of an operation.
func (s *Stopwatch) Begin() { s.steps.Store(s.steps.Load() | 1) }

// End notes its end.
func (s *Stopwatch) End() { s.steps.Store((s.steps.Load() | 1) + 1) }

// Busy is the time since the first call during the current operation, and always positive; 0 if no operation is
// running.
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
