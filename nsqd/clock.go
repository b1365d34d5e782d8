package nsqd

import (
	"sync/atomic"

	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// ClockSetBack adjusts the partition after Options.Now was set back by byNS nanoseconds. A timer
// that measures a duration must not wait for that duration twice. So the fence of a leader without
// contact to its replicas keeps its distance, and from now on no delivery stays in flight for
// longer than its timeout. A delayed message waits for a date and keeps it, unless an ordered
// channel waits for its redelivery.
func (p *Partition) ClockSetBack(byNS int64) {
	for _, fence := range []*atomic.Int64{&p.fence, &p.orderedFence} {
		if fence.Load() != 0 {
			fence.Add(-byNS)
		}
	}
	now := p.o.Now()
	for _, c := range p.list() {
		c.setBack(now, byNS)
	}
}

func (c *Channel) setBack(now, byNS int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = min(c.stalled, now)
	for _, f := range c.inFlight.bySeq {
		f.start = min(f.start, now)
		if most := now + c.timeoutNS(f.sub); f.deadline > most { // from before, so it keeps its distance
			c.inFlight.setDeadline(f, min(f.deadline-byNS, most))
		}
	}
	for _, seq := range c.retrying {
		if e, waits := c.cursor.Deferred.Get(seq); waits && e.Deadline != 0 {
			c.cursor.DeferUntil(cursor.NewEntry(seq, e.Deadline-byNS, e.Attempts()))
			c.changedLocked()
		}
	}
	c.p.lower(min(c.inFlight.next(), c.cursor.Deferred.Next()))
}
