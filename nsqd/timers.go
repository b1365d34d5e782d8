package nsqd

import (
	"sync/atomic"

	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// timers tell the broker's clock what a partition has to do.
type timers struct {
	due   atomic.Int64 // unix ns: the next timer for Expire
	dirty atomic.Bool  // Flush has a change to replicate
	dead  atomic.Bool  // some channel has dead messages for the broker
}

// fences are times in unix ns after which no channel delivers; 0: no fence.
type fences struct{ all, ordered atomic.Int64 }

// Extend moves the fence to a time in unix ns. After the fence a leader without contact to its replicas delivers
// nothing.
func (p *Partition) Extend(untilNS int64) {
	p.extend(untilNS, &p.fences.all, &p.fences.ordered)
}

// ExtendUnordered is Extend for all channels except the ordered ones.
func (p *Partition) ExtendUnordered(untilNS int64) {
	p.fences.ordered.CompareAndSwap(0, untilNS)
	p.extend(untilNS, &p.fences.all)
}

func (p *Partition) extend(untilNS int64, fences ...*atomic.Int64) {
	now, shared, closed := p.o.Now(), p.o.Fence.Load(), false
	for _, fence := range fences {
		before := max(fence.Swap(untilNS), shared)
		closed = closed || before != 0 && now >= before
	}
	if !closed {
		return
	}
	for _, c := range p.list() { // no subscriber was woken while the fence was closed
		c.update(func(int64) {})
	}
}

// Due is the time of the next timer for Expire (unix ns; MaxInt64: none). It may become earlier at any time.
func (p *Partition) Due() int64 { return p.timers.due.Load() }

// Dirty reports whether Flush has a change to replicate.
func (p *Partition) Dirty() bool { return p.timers.dirty.Load() }

// lower moves Due to an earlier time and calls Wake.
func (p *Partition) lower(deadline int64) {
	for {
		due := p.timers.due.Load()
		if deadline >= due {
			return
		}
		if p.timers.due.CompareAndSwap(due, deadline) {
			p.o.Wake(deadline)
			return
		}
	}
}

// Expire requeues deliveries that timed out and makes due deferred messages ready. It returns the new Due.
func (p *Partition) Expire(nowNS int64) (nextNS int64) {
	p.timers.due.Store(never) // first, so that a deadline set during the loop is not lost
	for _, c := range p.list() {
		p.lower(c.expire(nowNS))
	}
	return p.timers.due.Load()
}

// dueBatch is the number of messages that become ready or time out while the lock is held once. The core loop needs the
// same lock.
const dueBatch = 1024

// fireTimers makes due deferred messages ready, then requeues deliveries that timed out. True: there may be more.
func (c *Channel) fireTimers(now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving.leads {
		return false
	}
	n := c.cursor.Deferred.Expire(now, dueBatch)
	for ; n < dueBatch && c.inFlight.next() <= now; n++ {
		c.timeOutLocked(c.inFlight.heap[0], now)
	}
	c.offerLocked(now)
	return n == dueBatch
}

func (c *Channel) timeOutLocked(f *delivery, now int64) {
	if f.sub == &c.dead.hold {
		c.retryDeadMoveLocked(f, now)
		return
	}
	c.counts.Timeouts.Add(1)
	f.sub.revoke(f.seq)
	c.retryLocked(f, 0, now)
}

func (c *Channel) expire(now int64) int64 {
	for c.fireTimers(now) { // one batch at a time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serving.leads {
		return never
	}
	c.holdDeadFrontLocked(now)
	if c.reader.retryAt <= now {
		c.reader.retryAt = 0
	}
	lapse := c.expireOffersLocked(now)
	c.offerLocked(now)
	next := min(lapse, c.inFlight.next(), c.cursor.Deferred.Next())
	if c.reader.retryAt != 0 {
		next = min(next, c.reader.retryAt)
	}
	return next
}

// ClockSetBack adjusts the partition after Options.Now was set back by byNS nanoseconds: fences and timeouts keep their
// distance. A delayed message keeps its absolute time, unless an ordered channel waits for its redelivery.
func (p *Partition) ClockSetBack(byNS int64) {
	for _, fence := range []*atomic.Int64{&p.fences.all, &p.fences.ordered} {
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
	c.reader.retryAt = min(c.reader.retryAt, now)
	for _, f := range c.inFlight.bySeq {
		f.start = min(f.start, now)
		if most := now + c.timeoutNS(f.sub); f.deadline > most { // set before the clock change, so it keeps its distance
			c.inFlight.setDeadline(f, min(f.deadline-byNS, most))
		}
	}
	for _, seq := range c.order.retrying {
		if e, waits := c.cursor.Deferred.Get(seq); waits && e.Deadline != 0 {
			c.cursor.DeferUntil(cursor.NewEntry(seq, e.Deadline-byNS, e.Attempts()))
			c.changedLocked()
		}
	}
	c.p.lower(min(c.inFlight.next(), c.cursor.Deferred.Next()))
}
