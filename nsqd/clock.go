package nsqd

import "sync/atomic"

// SetBack tells that the clock (Options.Now) was set back. What waits for time to
// pass does not wait for it to pass twice: the fence of a leader that nobody hears
// stays where it was, and nothing is in flight for longer than its timeout from
// now on. What is delayed waits for a date, and goes on doing so.
func (p *Partition) SetBack(byNS int64) {
	for _, fence := range []*atomic.Int64{&p.until, &p.strict} {
		if fence.Load() != 0 {
			fence.Add(-byNS)
		}
	}
	now := p.o.Now()
	for _, c := range p.list() {
		c.setBack(now)
	}
}

func (c *Channel) setBack(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = min(c.stalled, now)
	for _, f := range c.flights.bySeq {
		f.start = min(f.start, now)
		c.flights.delay(f, min(f.deadline, now+c.timeoutNS(f.sub)))
	}
	c.p.lower(c.flights.next())
}
