package coordinator

import (
	"container/heap"
	"sync"
)

// agenda says of which partitions the channels have something to do, and when.
// The timer looks at these alone: looking at each of ten thousand partitions every
// 10 ms took a tenth of a core on each broker.
type agenda struct {
	mu struct {
		sync.Mutex
		due dueHeap
	}
}

// put notes that there is something to do at a time (unix ns, 0 = soon). What was
// noted for a later time gives way: who did it then notes what is left.
func (a *agenda) put(h *hosted, atNS int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case h.due.over:
	case h.due.place == 0:
		h.due.atNS = atNS
		heap.Push(&a.mu.due, h)
	case atNS < h.due.atNS:
		h.due.atNS = atNS
		heap.Fix(&a.mu.due, h.due.place-1)
	}
}

// take gives the partitions that have something to do by now, and forgets them.
func (a *agenda) take(nowNS int64, into []*hosted) []*hosted {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.mu.due) > 0 && a.mu.due[0].due.atNS <= nowNS {
		into = append(into, heap.Pop(&a.mu.due).(*hosted))
	}
	return into
}

// forget takes out a partition that is hosted no more, for good: a message may be due
// in a month, and its channels would stay in memory until then.
func (a *agenda) forget(h *hosted) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.due.over = true
	if h.due.place > 0 {
		heap.Remove(&a.mu.due, h.due.place-1)
	}
}

// due is a partition's entry in the agenda, guarded by its lock.
type due struct {
	atNS  int64
	place int  // in the heap, from 1; 0 = none
	over  bool // it is hosted no more
}

// dueHeap implements heap.Interface, the earliest first.
type dueHeap []*hosted

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due.atNS < d[j].due.atNS }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].due.place, d[j].due.place = i+1, j+1
}

func (d *dueHeap) Push(x any) {
	h := x.(*hosted)
	*d = append(*d, h)
	h.due.place = len(*d)
}

func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	h := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	h.due.place = 0
	return h
}
