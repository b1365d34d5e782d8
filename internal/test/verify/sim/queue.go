package sim

// micros is virtual time in microseconds since the start of a run.
type micros int64

const (
	millisecond micros = 1000
	second             = 1000 * millisecond
)

// action is something that happens at a time. Actions of one time happen in the
// order in which they were scheduled.
type action struct {
	at  micros
	seq uint64
	do  func()
}

func (a action) before(b action) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// deadlineHeap is a heap of actions, each above up to four others. It is written out
// because container/heap would box every action.
type deadlineHeap struct {
	heap []action
	seq  uint64
}

func (g *deadlineHeap) push(at micros, do func()) {
	g.seq++
	g.heap = append(g.heap, action{at, g.seq, do})
	for i := len(g.heap) - 1; i > 0; {
		up := (i - 1) / 4
		if !g.heap[i].before(g.heap[up]) {
			return
		}
		g.heap[i], g.heap[up] = g.heap[up], g.heap[i]
		i = up
	}
}

func (g *deadlineHeap) pop() (action, bool) {
	if len(g.heap) == 0 {
		return action{}, false
	}
	top, last := g.heap[0], len(g.heap)-1
	g.heap[0] = g.heap[last]
	g.heap[last] = action{}
	g.heap = g.heap[:last]
	g.sink()
	return top, true
}

func (g *deadlineHeap) sink() {
	for i := 0; ; {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < len(g.heap); c++ {
			if g.heap[c].before(g.heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		g.heap[i], g.heap[least] = g.heap[least], g.heap[i]
		i = least
	}
}
