package engine

import (
	"container/heap"
	"sync"
)

// deadlines says which partitions' channels have something to do, and when. The clock
// looks at these alone: looking at each of ten thousand partitions every 10 ms took a
// tenth of a core on each broker.
type deadlines struct {
	mu struct {
		sync.Mutex
		heap deadlineHeap
	}
}

// deadline is a partition's entry.
type deadline struct {
	atNS  int64
	place int  // in the heap, from 1; 0 = none
	over  bool // the partition is no longer hosted
}

// put notes that there is something to do at a time (unix ns, 0 = at the next tick). It
// replaces a later deadline: the goroutine that does it notes the next one.
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

// take removes the partitions that have something to do by now, and appends them.
func (d *deadlines) take(nowNS int64, into []*Partition) []*Partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.mu.heap) > 0 && d.mu.heap[0].deadline.atNS <= nowNS {
		into = append(into, heap.Pop(&d.mu.heap).(*Partition))
	}
	return into
}

// forget permanently removes a partition that is no longer hosted: a message may be due in a
// month, and its channels would stay in memory until then.
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
