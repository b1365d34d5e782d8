package nsqd

import (
	"cmp"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Messages that were put aside are settled for the cursor, so that one delayed
// or poison message does not hold it: DPUBs that are not due, requeued and timed
// out ones. asideSet keeps what the log does not know of them: when they are due
// and how often they were delivered. Each either waits for its deadline or is
// active: ready to be delivered, or delivered again and not finished yet.

// entry is what the replicated state says of one message put aside, in 16 bytes
// as there, so that a state with a million of them is written at the speed of a
// copy: it is done on a core loop.
type entry struct {
	deadline int64  // unix ns; in the past or 0: due
	mark     uint64 // sequence << 16 | attempts
}

func newEntry(seq ident.Sequence, deadline int64, attempts uint16) entry {
	return entry{deadline: deadline, mark: uint64(seq)<<16 | uint64(attempts)}
}

func (e entry) seq() ident.Sequence { return ident.Sequence(e.mark >> 16) }
func (e entry) attempts() uint16    { return uint16(e.mark) }

// before orders the heap; the sequence breaks ties, so that what is due together
// comes in the order of the log.
func (e entry) before(o entry) bool {
	return e.deadline < o.deadline || e.deadline == o.deadline && e.mark < o.mark
}

// active is a message that was put aside and is due.
type active struct {
	ready    bool // else it is in flight
	attempts uint16
}

// asideSet: a heap of those that wait and the place of each in it, a map of those
// that are active, a queue of those that are ready. At most 64 bytes a waiting
// message.
type asideSet struct {
	heap   []entry
	places map[ident.Sequence]int32
	active map[ident.Sequence]active
	ready  seqQueue
	// bySeq: what is ready comes by sequence, as on an ordered channel, and not as
	// it became ready. jumbled: the queue may have to be sorted for that.
	bySeq, jumbled bool
	// due counts the active ones that are ready. The queue may hold more: what
	// left the set by another way is skipped when it comes up.
	due int
}

// grow makes room for n waiting messages in an empty set.
func (a *asideSet) grow(n int) {
	if n > 0 && a.len() == 0 {
		a.places = make(map[ident.Sequence]int32, n)
		a.heap = make([]entry, 0, n)
	}
}

func (a *asideSet) len() int { return len(a.heap) + len(a.active) }

// wait puts a message aside until its deadline.
func (a *asideSet) wait(e entry) {
	a.drop(e.seq())
	a.push(e)
}

// push adds a message that is not in the set to the heap.
func (a *asideSet) push(e entry) {
	if a.places == nil {
		a.places = make(map[ident.Sequence]int32)
	}
	a.heap = append(a.heap, entry{})
	a.up(len(a.heap)-1, e)
}

// makeReady puts seq at the end of the ready queue.
func (a *asideSet) makeReady(seq ident.Sequence, attempts uint16) {
	a.drop(seq)
	a.activate(seq, active{ready: true, attempts: attempts})
	a.enqueue(seq)
}

// enqueue puts seq, which is active, at the end of the ready queue.
func (a *asideSet) enqueue(seq ident.Sequence) {
	a.jumbled = a.jumbled || a.ready.len() > 0 && seq < a.ready.last()
	a.ready.push(seq)
	a.due++
}

func (a *asideSet) activate(seq ident.Sequence, x active) {
	if a.active == nil {
		a.active = make(map[ident.Sequence]active)
	}
	a.active[seq] = x
}

// peek gives the first ready message.
func (a *asideSet) peek() (ident.Sequence, bool) {
	if a.bySeq && a.jumbled {
		slices.Sort(a.ready.items[a.ready.head:])
		a.jumbled = false
	}
	for a.ready.len() > 0 {
		seq := a.ready.front()
		if a.isReady(seq) {
			return seq, true
		}
		a.ready.pop()
	}
	return 0, false
}

// front lists the first ready messages: the one that peek has found, and at most so
// many in all that lie below a limit.
func (a *asideSet) front(most int, limit ident.Sequence) []ident.Sequence {
	seqs := []ident.Sequence{a.ready.front()}
	for _, seq := range a.ready.items[a.ready.head+1:] {
		if len(seqs) >= most {
			break
		}
		if seq < limit && a.isReady(seq) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// deliver moves the first ready message, which is seq, into flight and returns
// how often it was delivered before.
func (a *asideSet) deliver(seq ident.Sequence) uint16 {
	a.ready.pop()
	attempts := a.active[seq].attempts
	a.active[seq] = active{attempts: attempts}
	a.due--
	return attempts
}

// reclaim notes that seq is in flight with so many deliveries before.
func (a *asideSet) reclaim(seq ident.Sequence, attempts uint16) {
	a.drop(seq)
	a.activate(seq, active{attempts: attempts})
}

// drop takes seq out, wherever it is.
func (a *asideSet) drop(seq ident.Sequence) bool {
	x, isActive := a.active[seq]
	place, waits := a.places[seq]
	switch {
	case isActive:
		if x.ready {
			a.due--
		}
		delete(a.active, seq)
	case waits:
		a.unheap(int(place))
	default:
		return false
	}
	if a.len() == 0 {
		a.reset()
	}
	return true
}

// reset empties the set. Maps and heaps do not shrink by themselves; small ones
// are kept for the next message.
func (a *asideSet) reset() {
	if cap(a.heap)+cap(a.ready.items) > 1024 {
		*a = asideSet{bySeq: a.bySeq}
		return
	}
	clear(a.places)
	clear(a.active)
	a.heap, a.ready, a.due = a.heap[:0], seqQueue{items: a.ready.items[:0]}, 0
}

// has reports whether seq is in the set.
func (a *asideSet) has(seq ident.Sequence) bool {
	_, ok := a.get(seq)
	return ok
}

// get gives what is known of seq; the deadline is 0 unless it waits.
func (a *asideSet) get(seq ident.Sequence) (e entry, ok bool) {
	if x, ok := a.active[seq]; ok {
		return newEntry(seq, 0, x.attempts), true
	}
	place, ok := a.places[seq]
	if !ok {
		return entry{}, false
	}
	return a.heap[place], true
}

// entries lists the set: what waits in the heap's order, then the rest by
// sequence, so that equal histories give equal bytes.
func (a *asideSet) entries() []entry {
	all := append(make([]entry, 0, a.len()), a.heap...)
	return append(all, a.grounded()...)
}

// grounded lists, by sequence, what is ready or in flight, as due at once.
func (a *asideSet) grounded() []entry {
	all := make([]entry, 0, len(a.active))
	for seq, x := range a.active {
		all = append(all, newEntry(seq, 0, x.attempts))
	}
	slices.SortFunc(all, func(x, y entry) int { return cmp.Compare(x.mark, y.mark) })
	return all
}

// inFlight counts the entries that are delivered again.
func (a *asideSet) inFlight() int { return len(a.active) - a.due }

func (a *asideSet) isReady(seq ident.Sequence) bool { return a.active[seq].ready }

// next is the earliest deadline, or never.
func (a *asideSet) next() int64 {
	if len(a.heap) == 0 {
		return never
	}
	return a.heap[0].deadline
}

// expire makes at most so many of what is due at now ready and returns how many
// it was.
func (a *asideSet) expire(now int64, most int) (n int) {
	for n < most && len(a.heap) > 0 && a.heap[0].deadline <= now {
		e := a.heap[0]
		a.unheap(0)
		a.activate(e.seq(), active{ready: true, attempts: e.attempts()})
		a.enqueue(e.seq())
		n++
	}
	return n
}

// ground makes everything wait in the heap, due at once: what is ready or in
// flight on a leader is just unfinished on a follower.
func (a *asideSet) ground() {
	all := a.grounded()
	a.active, a.ready, a.due = nil, seqQueue{}, 0
	for _, e := range all {
		a.push(e)
	}
}

// low is the least sequence that waits or is ready and is not passed over, or
// `or` if that is less.
func (a *asideSet) low(or ident.Sequence, pass func(ident.Sequence) bool) ident.Sequence {
	for _, e := range a.heap { // a scan of a slice: a million take a millisecond
		if e.seq() < or && !pass(e.seq()) {
			or = e.seq()
		}
	}
	for _, seq := range a.ready.items[a.ready.head:] {
		if seq < or && a.isReady(seq) && !pass(seq) {
			or = seq
		}
	}
	return or
}

// all yields every sequence of the set, in no order.
func (a *asideSet) all(yield func(ident.Sequence) bool) {
	for _, e := range a.heap {
		if !yield(e.seq()) {
			return
		}
	}
	for seq := range a.active {
		if !yield(seq) {
			return
		}
	}
}

func (a *asideSet) set(i int, e entry) {
	a.heap[i] = e
	a.places[e.seq()] = int32(i)
}

// unheap takes the message at place i off the heap.
func (a *asideSet) unheap(i int) {
	delete(a.places, a.heap[i].seq())
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

// up and down find the place for e, starting at i, which is free.
func (a *asideSet) up(i int, e entry) {
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

func (a *asideSet) down(i int, e entry) {
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
