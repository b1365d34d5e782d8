package engine

import (
	"context"
	"time"
)

const (
	// nearEvery is the least pause between two looks at the near deadlines: with ten
	// thousand messages due a second, ten of them become ready together.
	nearEvery = time.Millisecond
	nearQueue = 256
)

// nearTimer makes delayed messages ready when they are due, not at the clock's next tick:
// of ten thousand due a second a hundred would be late by all of it. The clock adds the
// partitions in which something is due before its next tick; while there is none the
// timer sleeps.
type nearTimer struct{ added chan *Partition }

func newNearTimer() *nearTimer { return &nearTimer{added: make(chan *Partition, nearQueue)} }

// add takes a partition in. When there are too many, the clock's tick is early enough.
func (n *nearTimer) add(p *Partition) {
	select {
	case n.added <- p:
	default:
	}
}

// RunNearTimer expires near deadlines. It returns when ctx ends.
func (e *Engine) RunNearTimer(ctx context.Context) { e.near.run(ctx) }

// run looks at the partitions until nothing in them is due before the next tick.
func (n *nearTimer) run(ctx context.Context) {
	near := map[*Partition]struct{}{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-n.added:
			near[p] = struct{}{}
		case <-timer.C:
			expireDue(near, time.Now().UnixNano())
		}
		if next, any := nextDue(near, time.Now().Add(tickEvery).UnixNano()); any {
			timer.Reset(max(time.Until(time.Unix(0, next)), nearEvery))
		}
	}
}

func expireDue(near map[*Partition]struct{}, nowNS int64) {
	for p := range near {
		if p.Leading() && p.queue.Due() <= nowNS {
			p.queue.Expire(nowNS)
		}
	}
}

// nextDue is when the next thing is due; partitions in which nothing is due before
// the end are dropped.
func nextDue(near map[*Partition]struct{}, endNS int64) (next int64, any bool) {
	next = endNS
	for p := range near {
		due := p.queue.Due()
		if due >= endNS || !p.Leading() {
			delete(near, p)
			continue
		}
		next, any = min(next, due), true
	}
	return next, any
}
