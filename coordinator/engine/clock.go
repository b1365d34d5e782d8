package engine

import (
	"context"
	"math"
	"time"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// After a gap of stall between two ticks, the state of the peers is not trusted until they could report again.
	stall = 300 * time.Millisecond
	// stepLeast is the least step back of the wall clock that is corrected. On a busy machine a smaller one may be the
	// time that passes between reading the two clocks.
	stepLeast = 100 * time.Millisecond
)

// RunClock drives the channels led here: timeouts, delays, deltas of changed state, fences. It returns when ctx ends.
func (e *Engine) RunClock(ctx context.Context) {
	last, trusted, extended := time.Now(), time.Now(), time.Time{}
	var due []*Partition
	concurrency.Every(ctx, tickEvery, func() {
		now := time.Now()
		if now.Sub(last) > stall {
			trusted = now.Add(stall)
		}
		if by := now.Sub(last) - wallTime(now).Sub(wallTime(last)); by > stepLeast {
			e.setBack(by)
		}
		last = now
		e.relieve()
		e.changes.log(e.o.Log, now)
		if now.Sub(extended) >= e.extendEvery() {
			extended = now
			e.extendAll(now, now.After(trusted))
		}
		due = e.deadlines.take(now.Add(tickEvery).UnixNano(), due[:0])
		for _, p := range due {
			e.drive(p, now.UnixNano())
		}
		clear(due)
	})
}

// wallTime strips the monotonic clock, so that times differ by the wall clock.
func wallTime(t time.Time) time.Time { return t.Round(0) }

// setBack corrects fences, timeouts and deadlines, which are in wall time and would otherwise wait too long. A clock
// that is set forward ends them early: messages are redelivered, and the fence is renewed.
func (e *Engine) setBack(by time.Duration) {
	e.o.Log.WithField("by", by).Warn("wall clock was set back: delayed messages are late by that much")
	if e.fence.Load() != 0 {
		e.fence.Add(-by.Nanoseconds())
	}
	for _, p := range e.Partitions() {
		p.queue.ClockSetBack(by.Nanoseconds())
		e.deadlines.put(p, 0)
	}
}

// drive fires the timers of a partition's channels, and schedules its next deadline.
func (e *Engine) drive(p *Partition, nowNS int64) {
	if !p.Leading() {
		return // Lead asks again
	}
	if p.queue.Due() <= nowNS {
		p.queue.Expire(nowNS)
	}
	p.queue.Flush()
	if p.queue.DeadPending() {
		e.o.Dead(p)
	}
	at := p.queue.Due()
	if at < nowNS+tickEvery.Nanoseconds() {
		e.near.add(p)
	}
	if at < math.MaxInt64 {
		e.deadlines.put(p, at)
	}
}
