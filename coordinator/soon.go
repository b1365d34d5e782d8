package coordinator

import (
	"context"
	"time"
)

const (
	// soonEvery is the least pause between two looks at what is due: with ten
	// thousand messages due a second, ten of them become ready together.
	soonEvery = time.Millisecond
	soonQueue = 256
)

// soon makes delayed messages ready when they are due, not at the timer's next
// tick: of ten thousand due a second a hundred would be late by all of it. The
// timer tells it the partitions in which something is due before its next tick;
// while nothing is, it sleeps.
type soon struct{ told chan *hosted }

func newSoon() *soon { return &soon{told: make(chan *hosted, soonQueue)} }

// tell takes a partition in. When there are too many, the timer's tick will do.
func (s *soon) tell(h *hosted) {
	select {
	case s.told <- h:
	default:
	}
}

// keep looks at the partitions until nothing is due before the next tick. Started
// by start, ends with the broker; it owns nothing but its list.
func (s *soon) keep(ctx context.Context) {
	near := map[*hosted]struct{}{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-s.told:
			near[h] = struct{}{}
		case <-timer.C:
			expireDue(near, time.Now().UnixNano())
		}
		if next, any := nextDue(near, time.Now().Add(tickEvery).UnixNano()); any {
			timer.Reset(max(time.Until(time.Unix(0, next)), soonEvery))
		}
	}
}

func expireDue(near map[*hosted]struct{}, nowNS int64) {
	for h := range near {
		if h.Leading() && h.queue.Due() <= nowNS {
			h.queue.Expire(nowNS)
		}
	}
}

// nextDue is when the next thing is due; partitions in which nothing is due before
// the end are dropped.
func nextDue(near map[*hosted]struct{}, endNS int64) (next int64, any bool) {
	next = endNS
	for h := range near {
		due := h.queue.Due()
		if due >= endNS || !h.Leading() {
			delete(near, h)
			continue
		}
		next, any = min(next, due), true
	}
	return next, any
}
