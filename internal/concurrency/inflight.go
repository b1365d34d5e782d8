package concurrency

import "sync/atomic"

// remembered is the number of operations after contention that count as contended although they find
// the count at zero: the first operation of a burst also finds it at zero.
const remembered = 16

// InFlight counts the operations under way (puts, answers) and reports whether an operation is
// uncontended: no other is under way, and none was recently. An uncontended operation should run
// inline, because waking another goroutine costs more than the work itself. Contended operations should
// go to one goroutine that batches them. The zero value is ready; any goroutine may use it.
type InFlight struct {
	n         atomic.Int64
	contended atomic.Int64 // how many more operations count as contended
}

// Enter notes that one more operation is under way, and reports whether it is uncontended.
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

// N is the number of operations under way.
func (c *InFlight) N() int64 { return c.n.Load() }
