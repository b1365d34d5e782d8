package engine

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// deadlines orders the partitions by the time at which their channels have something to do. The clock visits only
// those that are due: visiting each of ten thousand partitions every 10 ms took a tenth of a core.
type deadlines struct {
	mu struct {
		sync.Mutex
		heap deadlineHeap
	}
}

// deadline is a partition's entry in the heap.
type deadline struct {
	atNS  int64
	place int  // in the heap, from 1; 0 = none
	over  bool // the partition is no longer hosted
}

// put schedules a partition for a time (unix ns, 0 = at the next tick), unless it is scheduled earlier.
func (d *deadlines) put(p *Partition, atNS int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case p.deadline.over:
	case p.deadline.place == 0:
		p.deadline.atNS = atNS
		heap.Push(&d.mu.heap, p)
	case atNS < p.deadline.atNS:
		p.deadline.atNS = atNS
		heap.Fix(&d.mu.heap, p.deadline.place-1)
	}
}

// take removes the partitions that are due, and appends them.
func (d *deadlines) take(nowNS int64, into []*Partition) []*Partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.mu.heap) > 0 && d.mu.heap[0].deadline.atNS <= nowNS {
		into = append(into, heap.Pop(&d.mu.heap).(*Partition))
	}
	return into
}

// forget permanently removes a partition that is no longer hosted: a later put has no effect. Otherwise a message that
// is due in a month would keep the partition in memory until then.
func (d *deadlines) forget(p *Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.deadline.over = true
	if p.deadline.place > 0 {
		heap.Remove(&d.mu.heap, p.deadline.place-1)
	}
}

// deadlineHeap implements heap.Interface, the earliest first.
type deadlineHeap []*Partition

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline.atNS < h[j].deadline.atNS }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].deadline.place, h[j].deadline.place = i+1, j+1
}

func (h *deadlineHeap) Push(x any) {
	p := x.(*Partition)
	*h = append(*h, p)
	p.deadline.place = len(*h)
}

func (h *deadlineHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	p.deadline.place = 0
	return p
}

const (
	// nearEvery is the least pause between two rounds: messages that are due within it become ready together.
	nearEvery = time.Millisecond
	nearQueue = 256
)

// nearTimer makes delayed messages ready when they are due instead of at the clock's next tick. The clock adds the
// partitions in which something is due before that tick. If there are none, the timer sleeps.
type nearTimer struct{ added chan *Partition }

func newNearTimer() *nearTimer { return &nearTimer{added: make(chan *Partition, nearQueue)} }

// add adds a partition. If there are too many, it waits for the clock's tick.
func (n *nearTimer) add(p *Partition) {
	select {
	case n.added <- p:
	default:
	}
}

// RunNearTimer expires near deadlines. It returns when ctx ends.
func (e *Engine) RunNearTimer(ctx context.Context) { e.near.run(ctx) }

// run expires the deadlines of each partition until nothing in it is due before the next tick.
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
			now := time.Now().UnixNano()
			for p := range near {
				if p.Leading() && p.queue.Due() <= now {
					p.queue.Expire(now)
				}
			}
		}
		if next, any := nextDue(near, time.Now().Add(tickEvery).UnixNano()); any {
			timer.Reset(max(time.Until(time.Unix(0, next)), nearEvery))
		}
	}
}

// nextDue is the next deadline. It drops the partitions in which nothing is due before the end.
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
