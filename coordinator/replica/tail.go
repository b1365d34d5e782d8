package replica

import (
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// tail is the newest part of a leader's log, in memory, so that followers that keep up need no reads. The batches are
// contiguous up to the log's end. `head` counts the popped entries in front, so that a pop moves nothing.
type tail struct {
	batches []queue.Batch
	head    int
	bytes   int
}

// addToTail keeps a new batch in memory for the followers, if there are any.
func (m *Machine) addToTail(b queue.Batch) {
	if len(m.state.Replicas) > 1 {
		m.log.tail.push(b, m.o.TailBytes)
	}
}

// all returns the batches, oldest first.
func (t *tail) all() []queue.Batch { return t.batches[t.head:] }

// push adds the newest batch, and drops the oldest ones above limit bytes.
func (t *tail) push(b queue.Batch, limit int) {
	t.batches = append(t.batches, b)
	t.bytes += len(b.Bytes)
	for t.bytes > limit && t.head < len(t.batches)-1 {
		t.pop()
	}
}

func (t *tail) trimTo(o ident.Offset) {
	for t.head < len(t.batches) && t.batches[t.head].End.Offset <= o {
		t.pop()
	}
}

// compactFrom is the number of popped entries from which on a pop may move the others to the front.
const compactFrom = 64

// pop drops the oldest batch and lets its bytes be collected.
func (t *tail) pop() {
	t.bytes -= len(t.batches[t.head].Bytes)
	t.batches[t.head] = queue.Batch{}
	t.head++
	switch {
	case t.head == len(t.batches):
		t.batches, t.head = t.batches[:0], 0
	case t.head >= compactFrom && 2*t.head >= len(t.batches):
		n := copy(t.batches, t.batches[t.head:])
		clear(t.batches[n:])
		t.batches, t.head = t.batches[:n], 0
	}
}

// drop empties the tail and frees its memory.
func (t *tail) drop() { *t = tail{} }

// from returns the batches from offset o on; nil if no batch in the tail begins there.
func (t *tail) from(o ident.Offset) []queue.Batch {
	kept := t.all()
	i := sort.Search(len(kept), func(i int) bool { return kept[i].At.Offset >= o })
	if i < len(kept) && kept[i].At.Offset == o {
		return kept[i:]
	}
	return nil
}
