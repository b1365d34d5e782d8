package cursor

import (
	"cmp"
	"math"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Entry is the replicated state of one deferred message. It has the 16 bytes of the encoded form, so
// that a core loop encodes a state with a million entries at the speed of a copy.
type Entry struct {
	Deadline int64  // unix ns; 0 or in the past: due
	Packed   uint64 // sequence << 16 | attempts
}

// NewEntry returns the entry of one message. The deadline is in unix ns.
func NewEntry(seq ident.Sequence, deadline int64, attempts uint16) Entry {
	return Entry{Deadline: deadline, Packed: uint64(seq)<<16 | uint64(attempts)}
}

// Seq is the sequence of the message.
func (e Entry) Seq() ident.Sequence { return ident.Sequence(e.Packed >> 16) }

// Attempts is the number of deliveries of the message so far.
func (e Entry) Attempts() uint16 { return uint16(e.Packed) }

// before orders the heap by deadline, and by sequence among equal deadlines.
func (e Entry) before(o Entry) bool {
	return e.Deadline < o.Deadline || e.Deadline == o.Deadline && e.Packed < o.Packed
}

// active is a deferred message that is due.
type active struct {
	ready    bool // false: it is in flight
	attempts uint16
}

// deferredSet holds the deadlines and attempts of deferred messages: DPUBs that are not due, requeued messages, and
// messages that timed out. The cursor counts them as settled, so that they do not block it. A deferred message either
// waits for its deadline, in a heap, or is active. An active message is either ready, in a queue, or it has been
// delivered again and is not finished.
type deferredSet struct {
	heap   []Entry
	places map[ident.Sequence]int32
	active map[ident.Sequence]active
	ready  seqQueue
	// BySeq: ready messages are delivered in sequence order, as on an ordered channel, instead of in the order in which
	// they became ready.
	BySeq    bool
	unsorted bool // the queue may have to be sorted for BySeq
	// due counts the ready messages. The queue may have more entries: Peek skips messages that have left the set.
	due int
}

// grow allocates memory for n waiting messages in an empty set.
func (a *deferredSet) grow(n int) {
	if n > 0 && a.Len() == 0 {
		a.places = make(map[ident.Sequence]int32, n)
		a.heap = make([]Entry, 0, n)
	}
}

// Len is the number of messages in the set.
func (a *deferredSet) Len() int { return len(a.heap) + len(a.active) }

// Schedule makes a message wait for its deadline. It replaces an earlier entry of the message.
func (a *deferredSet) Schedule(e Entry) {
	a.drop(e.Seq())
	a.push(e)
}

// push adds a message that is not in the set to the heap.
func (a *deferredSet) push(e Entry) {
	if a.places == nil {
		a.places = make(map[ident.Sequence]int32)
	}
	a.heap = append(a.heap, Entry{})
	a.up(len(a.heap)-1, e)
}

func (a *deferredSet) makeReady(seq ident.Sequence, attempts uint16) {
	a.drop(seq)
	a.activate(seq, active{ready: true, attempts: attempts})
	a.enqueue(seq)
}

// enqueue appends seq, which is active, to the ready queue.
func (a *deferredSet) enqueue(seq ident.Sequence) {
	a.unsorted = a.unsorted || a.ready.len() > 0 && seq < a.ready.last()
	a.ready.push(seq)
	a.due++
}

func (a *deferredSet) activate(seq ident.Sequence, x active) {
	if a.active == nil {
		a.active = make(map[ident.Sequence]active)
	}
	a.active[seq] = x
}

// Peek returns the first ready message.
func (a *deferredSet) Peek() (ident.Sequence, bool) {
	if a.BySeq && a.unsorted {
		slices.Sort(a.ready.items[a.ready.head:])
		a.unsorted = false
	}
	for a.ready.len() > 0 {
		seq := a.ready.front()
		if a.IsReady(seq) {
			return seq, true
		}
		a.ready.pop()
	}
	return 0, false
}

// Front lists the first ready messages, at most `most`: the result of Peek, and further ones below a limit.
func (a *deferredSet) Front(most int, limit ident.Sequence) []ident.Sequence {
	seqs := []ident.Sequence{a.ready.front()}
	for _, seq := range a.ready.items[a.ready.head+1:] {
		if len(seqs) >= most {
			break
		}
		if seq < limit && a.IsReady(seq) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// SkipFront removes the first entry of the ready queue. The message stays ready until the caller calls MarkInFlight.
func (a *deferredSet) SkipFront() { a.ready.pop() }

// Deliver moves seq, which is the first ready message, into flight. It returns the attempts before this delivery.
func (a *deferredSet) Deliver(seq ident.Sequence) uint16 {
	a.ready.pop()
	attempts := a.active[seq].attempts
	a.active[seq] = active{attempts: attempts}
	a.due--
	return attempts
}

// MarkInFlight notes that seq is in flight, with the attempts before this delivery.
func (a *deferredSet) MarkInFlight(seq ident.Sequence, attempts uint16) {
	a.drop(seq)
	a.activate(seq, active{attempts: attempts})
}

// drop removes seq from the set. False: it was not in the set.
func (a *deferredSet) drop(seq ident.Sequence) bool {
	x, isActive := a.active[seq]
	place, waits := a.places[seq]
	switch {
	case isActive:
		if x.ready {
			a.due--
		}
		delete(a.active, seq)
	case waits:
		a.removeAt(int(place))
	default:
		return false
	}
	if a.Len() == 0 {
		a.reset()
	}
	return true
}

// reset empties the set. It releases large maps and slices, because they never shrink, and reuses small ones.
func (a *deferredSet) reset() {
	if cap(a.heap)+cap(a.ready.items) > 1024 {
		*a = deferredSet{BySeq: a.BySeq}
		return
	}
	clear(a.places)
	clear(a.active)
	a.heap, a.ready, a.due = a.heap[:0], seqQueue{items: a.ready.items[:0]}, 0
}

func (a *deferredSet) Has(seq ident.Sequence) bool {
	_, ok := a.Get(seq)
	return ok
}

func (a *deferredSet) Waits(seq ident.Sequence) bool {
	_, ok := a.places[seq]
	return ok
}

// Get returns the entry of seq. Its deadline is 0 unless the message waits.
func (a *deferredSet) Get(seq ident.Sequence) (e Entry, ok bool) {
	if x, ok := a.active[seq]; ok {
		return NewEntry(seq, 0, x.attempts), true
	}
	place, ok := a.places[seq]
	if !ok {
		return Entry{}, false
	}
	return a.heap[place], true
}

// entries lists the waiting messages, then the active ones by sequence, so that equal histories have equal encodings.
func (a *deferredSet) entries() []Entry {
	all := append(make([]Entry, 0, a.Len()), a.heap...)
	return append(all, a.listActive()...)
}

// listActive lists, by sequence, the messages that are ready or in flight, with deadline 0.
func (a *deferredSet) listActive() []Entry {
	all := make([]Entry, 0, len(a.active))
	for seq, x := range a.active {
		all = append(all, NewEntry(seq, 0, x.attempts))
	}
	slices.SortFunc(all, func(x, y Entry) int { return cmp.Compare(x.Packed, y.Packed) })
	return all
}

// Waiting lists the messages that wait for their deadlines, in no order, read-only until the set changes.
func (a *deferredSet) Waiting() []Entry { return a.heap }

// Ready counts the messages that are due and not in flight.
func (a *deferredSet) Ready() int { return a.due }

// InFlight counts the messages that are delivered again and not finished.
func (a *deferredSet) InFlight() int { return len(a.active) - a.due }

// IsReady reports whether seq is due and not in flight.
func (a *deferredSet) IsReady(seq ident.Sequence) bool { return a.active[seq].ready }

// Next is the earliest deadline, or math.MaxInt64 if no message waits.
func (a *deferredSet) Next() int64 {
	if len(a.heap) == 0 {
		return math.MaxInt64
	}
	return a.heap[0].Deadline
}

// Expire makes messages that are due at now ready, at most `most` of them, and returns how many.
func (a *deferredSet) Expire(now int64, most int) (n int) {
	for n < most && len(a.heap) > 0 && a.heap[0].Deadline <= now {
		e := a.heap[0]
		a.removeAt(0)
		a.activate(e.Seq(), active{ready: true, attempts: e.Attempts()})
		a.enqueue(e.Seq())
		n++
	}
	return n
}

// Deactivate moves the active messages, which are simply unfinished on a follower, to the heap, due at once.
func (a *deferredSet) Deactivate() {
	all := a.listActive()
	a.active, a.ready, a.due = nil, seqQueue{}, 0
	for _, e := range all {
		a.push(e)
	}
}

// Low is the lowest sequence that waits or is ready and for which pass is false; or the argument `or` if that is lower.
func (a *deferredSet) Low(or ident.Sequence, pass func(ident.Sequence) bool) ident.Sequence {
	for _, e := range a.heap { // scanning a million entries of a slice takes a millisecond
		if e.Seq() < or && !pass(e.Seq()) {
			or = e.Seq()
		}
	}
	for _, seq := range a.ready.items[a.ready.head:] {
		if seq < or && a.IsReady(seq) && !pass(seq) {
			or = seq
		}
	}
	return or
}

// All yields every sequence of the set, in no order.
func (a *deferredSet) All(yield func(ident.Sequence) bool) {
	for _, e := range a.heap {
		if !yield(e.Seq()) {
			return
		}
	}
	for seq := range a.active {
		if !yield(seq) {
			return
		}
	}
}

func (a *deferredSet) set(i int, e Entry) {
	a.heap[i] = e
	a.places[e.Seq()] = int32(i)
}

func (a *deferredSet) removeAt(i int) {
	delete(a.places, a.heap[i].Seq())
	last := len(a.heap) - 1
	moved := a.heap[last]
	a.heap = a.heap[:last]
	if i == last {
		return
	}
	if i > 0 && moved.before(a.heap[(i-1)/2]) {
		a.up(i, moved)
	} else {
		a.down(i, moved)
	}
}

// up and down find the index for e in the heap, starting at index i, which is free.
func (a *deferredSet) up(i int, e Entry) {
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(a.heap[parent]) {
			break
		}
		a.set(i, a.heap[parent])
		i = parent
	}
	a.set(i, e)
}

func (a *deferredSet) down(i int, e Entry) {
	for {
		child := 2*i + 1
		if child >= len(a.heap) {
			break
		}
		if child+1 < len(a.heap) && a.heap[child+1].before(a.heap[child]) {
			child++
		}
		if !a.heap[child].before(e) {
			break
		}
		a.set(i, a.heap[child])
		i = child
	}
	a.set(i, e)
}

type seqQueue struct {
	items []ident.Sequence
	head  int
}

func (q *seqQueue) len() int              { return len(q.items) - q.head }
func (q *seqQueue) front() ident.Sequence { return q.items[q.head] }
func (q *seqQueue) last() ident.Sequence  { return q.items[len(q.items)-1] }

func (q *seqQueue) push(s ident.Sequence) {
	if q.head > 64 && q.head*2 > len(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, s)
}

func (q *seqQueue) pop() {
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}
