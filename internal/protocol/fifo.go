package protocol

import (
	"context"
	"sync"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/lone"
)

// fifo keeps the answers of one connection in the order of its commands. The
// reader adds to it, the Publisher fills in the fates of puts in any order, the
// writer takes the finished ones from the front.
type fifo struct {
	maxAnswers, maxBytes int
	wake                 chan struct{} // capacity 1: something may be ready for the writer
	room                 chan struct{} // capacity 1: the reader may look again
	owed                 *lone.Count   // puts of all connections without an answer
	now                  func() bool   // answers the lone put whose slot it is, if it can

	mu struct {
		sync.Mutex
		slots   []*slot // slots[head:] are pending, oldest first
		head    int
		answers int // owed by the pending slots
		bytes   int // of the puts among them
		free    []*slot
	}
}

// maxFreeSlots bounds the slots a connection keeps for re-use.
const maxFreeSlots = 256

// slot is the place of one command's answer; it is the Answerer of a put.
type slot struct {
	fifo  *fifo
	done  bool // under fifo.mu
	bytes int
	answer
}

// answer is what the writer does when a slot's turn has come.
type answer struct {
	kind  frameType
	text  []byte            // of an immediate answer; nil = write no frame
	put   string            // the verb of a put, whose answer is OK or its error
	fate  edge.PutResult    // of a put
	trace *trace            // with put: OK is not answer enough
	count int               // so many frames: gathered puts are answered one by one
	last  bool              // the connection ends after it
	half  bool              // with last: the client may still be sending
	start edge.Subscription // delivery begins after it
}

func newFifo(maxAnswers, maxBytes int, owed *lone.Count, now func() bool) *fifo {
	return &fifo{
		maxAnswers: maxAnswers, maxBytes: maxBytes, owed: owed, now: now,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// reserve takes the place of a put's answer. It waits for room first and fails
// only with ctx. The slot must be answered exactly once.
func (f *fifo) reserve(ctx context.Context, a answer, bytes int) (*slot, error) {
	if err := f.waitFor(ctx, f.roomLocked); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.addLocked()
	s.answer, s.bytes = a, bytes
	f.mu.answers += a.count
	f.mu.bytes += bytes
	f.owed.Enter()
	return s, nil
}

// add adds an answer that is known already. It waits for room first: a client
// that earns errors and does not read them must not fill the memory.
func (f *fifo) add(ctx context.Context, a answer) error {
	err := f.waitFor(ctx, f.roomLocked)
	if err == nil {
		f.push(a)
	}
	return err
}

// push adds an answer without waiting for room: for the few that a client
// cannot cause at will.
func (f *fifo) push(a answer) {
	f.mu.Lock()
	s := f.addLocked()
	a.count = 1
	s.answer, s.bytes, s.done = a, 0, true
	f.mu.answers++
	f.mu.Unlock()
	signal(f.wake)
}

// drained waits until every answer was taken by the writer.
func (f *fifo) drained(ctx context.Context) error { return f.waitFor(ctx, f.emptyLocked) }

func (f *fifo) emptyLocked() bool { return f.mu.answers == 0 }

func (f *fifo) roomLocked() bool {
	return f.mu.answers == 0 || f.mu.answers < f.maxAnswers && f.mu.bytes < f.maxBytes
}

// waitFor waits for a condition that the writer's taking brings about. Only
// the reader waits, and only the reader could undo the condition.
func (f *fifo) waitFor(ctx context.Context, condition func() bool) error {
	for {
		f.mu.Lock()
		ok := condition()
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-f.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take appends the answers at the front that are ready to dst.
func (f *fifo) take(dst []answer) []answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.mu.head
	for f.mu.head < len(f.mu.slots) && f.mu.slots[f.mu.head].done {
		dst = append(dst, f.mu.slots[f.mu.head].answer)
		f.popLocked()
	}
	if f.mu.head == before {
		return dst
	}
	f.compactLocked()
	signal(f.room)
	return dst
}

// popLocked takes the slot at the front.
func (f *fifo) popLocked() {
	s := f.mu.slots[f.mu.head]
	f.mu.slots[f.mu.head] = nil
	f.mu.head++
	f.mu.answers -= s.count
	f.mu.bytes -= s.bytes
	f.freeLocked(s)
}

// compactLocked gives back the places of slots that were taken.
func (f *fifo) compactLocked() {
	if rest := len(f.mu.slots) - f.mu.head; f.mu.head >= rest {
		copy(f.mu.slots, f.mu.slots[f.mu.head:])
		clear(f.mu.slots[rest:])
		f.mu.slots, f.mu.head = f.mu.slots[:rest], 0
	}
}

func (f *fifo) addLocked() *slot {
	var s *slot
	if n := len(f.mu.free); n > 0 {
		s, f.mu.free = f.mu.free[n-1], f.mu.free[:n-1]
	} else {
		s = &slot{fifo: f}
	}
	f.mu.slots = append(f.mu.slots, s)
	return s
}

func (f *fifo) freeLocked(s *slot) {
	if len(f.mu.free) < maxFreeSlots {
		s.answer, s.done, s.bytes = answer{}, false, 0
		f.mu.free = append(f.mu.free, s)
	}
}

// Answer fills in the fate of the put, and wakes the writer if its turn has
// come. An OK that nobody else's answer follows soon is written without it: to wake a
// goroutine takes longer. Answer never blocks.
func (s *slot) Answer(r edge.PutResult) {
	f := s.fifo
	alone := f.owed.Leave()
	f.mu.Lock()
	s.fate, s.done = r, true
	first := f.mu.head < len(f.mu.slots) && f.mu.slots[f.mu.head] == s
	f.mu.Unlock()
	if first && !(alone && f.now()) {
		signal(f.wake)
	}
}

// takeOK takes the answer at the front if it is the only one, and nothing but OK.
func (f *fifo) takeOK() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.slots)-f.mu.head != 1 {
		return false
	}
	s := f.mu.slots[f.mu.head]
	if !s.done || s.put == "" || s.count != 1 || s.trace != nil || s.fate.Err != nil {
		return false
	}
	f.popLocked()
	f.compactLocked()
	signal(f.room)
	return true
}

// signal never blocks: one signal that was not received yet is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
