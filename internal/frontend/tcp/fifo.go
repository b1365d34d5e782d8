package tcp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// fifo holds the answers of one connection in the order of its commands. The reader appends, the Publisher sets the
// results of puts in any order, and the writer takes complete answers from the front.
type fifo struct {
	maxAnswers, maxBytes int
	wake                 concurrency.Edge      // an answer may be ready for the writer
	space                concurrency.Edge      // the reader may check again
	owed                 *concurrency.InFlight // unanswered puts of all connections
	share                *atomic.Pointer[limits.Share]
	answerDirect         func() bool // writes the answer of an uncontended put inline; false = left to the writer

	mu struct {
		sync.Mutex
		slots   []*slot // slots[head:] are pending, oldest first
		head    int
		answers int // of the pending slots
		bytes   int // total size of the puts among the pending slots
		memory  limits.Tally
		closed  bool
		free    []*slot
	}
}

// maxFreeSlots bounds the slots that a connection keeps for re-use.
const maxFreeSlots = 256

// slot holds one command's answer. It is the Answerer of a put.
type slot struct {
	fifo     *fifo
	done     bool // under fifo.mu
	bytes    int
	cost     int         // counted in fifo.mu.memory
	reserved reservation // memory of the body of a large put
	answer
}

// answer is what the writer writes for a slot, in the order of the slots.
type answer struct {
	kind  frameType
	text  []byte           // of an immediate answer; nil = write no frame
	put   string           // the verb of a put; the answer is OK or the put's error
	fate  api.PutResult    // of a put
	trace *trace           // with put: the answer includes the position
	count int              // number of frames: gathered puts are answered one by one
	last  bool             // the connection ends after it
	half  bool             // with last: the client may still be sending
	start api.Subscription // its messages are delivered after this answer
}

func newFifo(maxAnswers, maxBytes int, owed *concurrency.InFlight, answerDirect func() bool) *fifo {
	return &fifo{
		maxAnswers: maxAnswers, maxBytes: maxBytes, owed: owed, answerDirect: answerDirect,
		wake: concurrency.NewEdge(), space: concurrency.NewEdge(),
	}
}

// answerBytes is the memory of an answer without its text.
const answerBytes = 256

// reserve appends the slot of a put's answer. It waits for room and fails only with ctx. The slot must be answered
// exactly once. It takes over the memory of the put's body.
func (f *fifo) reserve(ctx context.Context, a answer, bytes int, body *reservation) (*slot, error) {
	cost := answerBytes
	if body.bytes == 0 {
		cost += bytes
	}
	if err := f.waitFor(ctx, func() bool { return f.takeLocked(cost) }); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.addLocked()
	s.answer, s.bytes, s.cost = a, bytes, cost
	s.reserved, *body = *body, reservation{}
	f.mu.answers += a.count
	f.mu.bytes += bytes
	f.owed.Enter()
	return s, nil
}

// add appends a complete answer. It waits for room: a client that causes errors and does not read them must not fill
// the memory.
func (f *fifo) add(ctx context.Context, a answer) error {
	cost := answerBytes + len(a.text)
	err := f.waitFor(ctx, func() bool { return f.takeLocked(cost) })
	if err == nil {
		f.append(a, cost)
	}
	return err
}

// push appends a complete answer without waiting. It is for answers whose number the client cannot increase.
func (f *fifo) push(a answer) { f.append(a, 0) }

func (f *fifo) append(a answer, cost int) {
	f.mu.Lock()
	s := f.addLocked()
	a.count = 1
	s.answer, s.bytes, s.cost, s.done = a, 0, cost, true
	f.mu.answers++
	f.mu.Unlock()
	f.wake.Notify()
}

func (f *fifo) drained(ctx context.Context) error {
	return f.waitFor(ctx, func() bool { return f.mu.answers == 0 })
}

// takeLocked counts the memory of an answer if there is room for it. There is always room for a single answer.
func (f *fifo) takeLocked(cost int) bool {
	if f.mu.answers == 0 {
		if f.share != nil { // later answers count against the current share of the client
			f.mu.memory.Move(f.share.Load().Tally(limits.Answers))
		}
		f.mu.memory.Force(cost)
		return true
	}
	return f.mu.answers < f.maxAnswers && f.mu.bytes < f.maxBytes && f.mu.memory.Take(cost)
}

// waitFor waits until condition holds; the writer makes it true by taking answers. Only the reader waits, and only the
// reader could make it false again.
func (f *fifo) waitFor(ctx context.Context, condition func() bool) error {
	for {
		f.mu.Lock()
		ok := condition()
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-f.space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close releases the memory when the connection has ended; the memory of an unanswered put is released by its answer.
func (f *fifo) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.closed = true
	for _, s := range f.mu.slots[f.mu.head:] {
		if s.done {
			f.freeMemoryLocked(s)
		}
	}
}

func (f *fifo) freeMemoryLocked(s *slot) {
	f.mu.memory.Give(s.cost)
	s.reserved.release()
}

// take appends the complete answers at the front to dst, at most `most` of them.
func (f *fifo) take(dst []answer, most int) []answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.mu.head
	for f.mu.head < len(f.mu.slots) && f.mu.slots[f.mu.head].done {
		if f.mu.head-before == most {
			f.wake.Notify()
			break
		}
		dst = append(dst, f.mu.slots[f.mu.head].answer)
		f.popLocked()
	}
	if f.mu.head == before {
		return dst
	}
	f.compactLocked()
	f.space.Notify()
	return dst
}

func (f *fifo) popLocked() {
	s := f.mu.slots[f.mu.head]
	f.mu.slots[f.mu.head] = nil
	f.mu.head++
	f.mu.answers -= s.count
	f.mu.bytes -= s.bytes
	f.freeMemoryLocked(s)
	f.freeLocked(s)
}

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
		s.answer, s.done, s.bytes, s.cost = answer{}, false, 0, 0
		f.mu.free = append(f.mu.free, s)
	}
}

// Answer sets the result of the put and wakes the writer if the slot is at the front. If the answer is OK and no other
// put is unanswered, Answer writes it inline: waking a goroutine takes longer. It never blocks.
func (s *slot) Answer(r api.PutResult) {
	f := s.fifo
	uncontended := f.owed.Leave()
	f.mu.Lock()
	s.fate, s.done = r, true
	if f.mu.closed {
		f.freeMemoryLocked(s)
	}
	first := f.mu.head < len(f.mu.slots) && f.mu.slots[f.mu.head] == s
	f.mu.Unlock()
	if first && !(uncontended && f.answerDirect()) {
		f.wake.Notify()
	}
}

// takeOK takes the answer at the front if it is the only one and a plain OK.
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
	f.space.Notify()
	return true
}
