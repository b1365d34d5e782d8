// Package lone tells whether somebody is alone: whether one put, or one answer, is all
// that is under way, and not the first of many.
//
// What is alone is best carried through by who has it, since each goroutine that has to
// wake up for it costs more than its work. What comes together is best left to a
// goroutine that gathers it. The first of many looks as if it were alone; so who was
// in company lately does not count as alone.
package lone

import "sync/atomic"

// lately is for how many that seem to be alone company is remembered.
const lately = 16

// Count counts what is under way. Its zero value is ready; any goroutine may use it.
type Count struct {
	n       atomic.Int64
	company atomic.Int64 // how many more do not count as alone
}

// Enter notes that one more is under way, and reports whether it is alone.
func (c *Count) Enter() bool {
	if c.n.Add(1) > 1 {
		if c.company.Load() != lately {
			c.company.Store(lately)
		}
		return false
	}
	if c.company.Load() > 0 {
		c.company.Add(-1)
		return false
	}
	return true
}

// Leave notes the end of one, and reports whether it was alone.
func (c *Count) Leave() bool { return c.n.Add(-1) == 0 && c.company.Load() <= 0 }

// N is how many are under way.
func (c *Count) N() int64 { return c.n.Load() }
