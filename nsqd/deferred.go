package nsqd

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Messages that were put aside are settled for the cursor, so that one delayed
// or poison message does not hold it: DPUBs that are not due, requeued and timed
// out ones. asideSet keeps what the log does not know of them: when they are due
// and how often they were delivered. Each is in one of three places.
const (
	placeReady    = -1 // due, in the ready queue
	placeInFlight = -2 // delivered again, not finished yet
	// 0 and above: waiting, the index in the heap
)

// aside is what is known of one message that was put aside.
type aside struct {
	at       int32 // a place… or an index in the heap
	attempts uint16
}

// deferral waits for its deadline. 16 bytes, as in the snapshot.
type deferral struct {
	deadline int64
	seq      ident.Sequence
}

// before orders the heap; the sequence breaks ties, so that what is due together
// comes in the order of the log.
func (d deferral) before(o deferral) bool {
	return d.deadline < o.deadline || d.deadline == o.deadline && d.seq < o.seq
}

// entry is all that the replicated state says of one message put aside.
type entry struct {
	seq      ident.Sequence
	deadline int64 // unix ns; in the past or 0: due
	attempts uint16
}

// asideSet: a map for lookups, a heap of those that wait, a queue of those that
// are due. At most 64 bytes a waiting message.
type asideSet struct {
	index map[ident.Sequence]aside
	heap  []deferral
	ready seqQueue
	// due counts the entries of the index that are placeReady. The queue may hold
	// more: what left the set by another way is skipped when it comes up.
	due int
}

// grow makes room for n messages in an empty set.
func (a *asideSet) grow(n int) {
	if n > 0 && len(a.index) == 0 {
		a.index = make(map[ident.Sequence]aside, n)
		a.heap = make([]deferral, 0, n)
	}
}

func (a *asideSet) len() int { return len(a.index) }

// wait puts seq aside until the deadline; it must not be in the heap.
func (a *asideSet) wait(seq ident.Sequence, deadline int64, attempts uint16) {
	a.drop(seq)
	if a.index == nil {
		a.index = make(map[ident.Sequence]aside)
	}
	a.index[seq] = aside{attempts: attempts}
	a.heap = append(a.heap, deferral{})
	a.up(len(a.heap)-1, deferral{deadline, seq})
}

// makeReady puts seq at the end of the ready queue.
func (a *asideSet) makeReady(seq ident.Sequence, attempts uint16) {
	a.drop(seq)
	if a.index == nil {
		a.index = make(map[ident.Sequence]aside)
	}
	a.index[seq] = aside{at: placeReady, attempts: attempts}
	a.ready.push(seq)
	a.due++
}

// peek gives the first ready message.
func (a *asideSet) peek() (ident.Sequence, bool) {
	for a.ready.len() > 0 {
		seq := a.ready.front()
		if a.isReady(seq) {
			return seq, true
		}
		a.ready.pop()
	}
	return 0, false
}

// deliver moves the first ready message, which is seq, into flight and returns
// how often it was delivered before.
func (a *asideSet) deliver(seq ident.Sequence) uint16 {
	a.ready.pop()
	e := a.index[seq]
	a.index[seq] = aside{at: placeInFlight, attempts: e.attempts}
	a.due--
	return e.attempts
}

// reclaim notes that seq is in flight with so many deliveries before.
func (a *asideSet) reclaim(seq ident.Sequence, attempts uint16) {
	a.makeReady(seq, attempts)
	a.due--
	a.index[seq] = aside{at: placeInFlight, attempts: attempts}
}

// drop takes seq out, wherever it is.
func (a *asideSet) drop(seq ident.Sequence) bool {
	e, ok := a.index[seq]
	if !ok {
		return false
	}
	if e.at == placeReady {
		a.due--
	} else if e.at >= 0 {
		a.unheap(int(e.at))
	}
	delete(a.index, seq)
	if len(a.index) == 0 {
		a.reset()
	}
	return true
}

// reset empties the set. Maps and heaps do not shrink by themselves; small ones
// are kept for the next message.
func (a *asideSet) reset() {
	if cap(a.heap)+cap(a.ready.items) > 1024 {
		*a = asideSet{}
		return
	}
	clear(a.index)
	a.heap, a.ready, a.due = a.heap[:0], seqQueue{items: a.ready.items[:0]}, 0
}

// get gives what is known of seq; the deadline is 0 unless it waits.
func (a *asideSet) get(seq ident.Sequence) (e entry, ok bool) {
	x, ok := a.index[seq]
	if !ok {
		return entry{}, false
	}
	e = entry{seq: seq, attempts: x.attempts}
	if x.at >= 0 {
		e.deadline = a.heap[x.at].deadline
	}
	return e, true
}

// entries lists the set: what waits in the heap's order, then the rest by
// sequence, so that equal histories give equal bytes.
func (a *asideSet) entries() []entry {
	all := make([]entry, 0, len(a.index))
	for _, d := range a.heap {
		all = append(all, entry{d.seq, d.deadline, a.index[d.seq].attempts})
	}
	for _, seq := range a.active() {
		all = append(all, entry{seq: seq, attempts: a.index[seq].attempts})
	}
	return all
}

// active lists, sorted, what is ready or in flight.
func (a *asideSet) active() []ident.Sequence {
	if len(a.index) == len(a.heap) {
		return nil
	}
	seqs := make([]ident.Sequence, 0, len(a.index)-len(a.heap))
	for seq, e := range a.index {
		if e.at < 0 {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// inFlight counts the entries that are delivered again.
func (a *asideSet) inFlight() int { return len(a.index) - len(a.heap) - a.due }

func (a *asideSet) isReady(seq ident.Sequence) bool {
	e, ok := a.index[seq]
	return ok && e.at == placeReady
}

// next is the earliest deadline, or never.
func (a *asideSet) next() int64 {
	if len(a.heap) == 0 {
		return never
	}
	return a.heap[0].deadline
}

// expire makes all that is due at now ready and returns how many it was.
func (a *asideSet) expire(now int64) (n int) {
	for len(a.heap) > 0 && a.heap[0].deadline <= now {
		seq := a.heap[0].seq
		a.unheap(0)
		e := a.index[seq]
		e.at = placeReady
		a.index[seq] = e
		a.ready.push(seq)
		a.due++
		n++
	}
	return n
}

// ground makes everything wait in the heap, due at once: what is ready or in
// flight on a leader is just unfinished on a follower.
func (a *asideSet) ground() {
	for _, seq := range a.active() {
		a.heap = append(a.heap, deferral{})
		a.up(len(a.heap)-1, deferral{0, seq})
	}
	a.ready, a.due = seqQueue{}, 0
}

// low is the least sequence that waits or is ready and is not passed over, or
// `or` if that is less.
func (a *asideSet) low(or ident.Sequence, pass func(ident.Sequence) bool) ident.Sequence {
	for _, d := range a.heap { // a scan of a slice: a million take a millisecond
		if d.seq < or && !pass(d.seq) {
			or = d.seq
		}
	}
	for _, seq := range a.ready.items[a.ready.head:] {
		if seq < or && a.index[seq].at == placeReady && !pass(seq) {
			or = seq
		}
	}
	return or
}

func (a *asideSet) set(i int, d deferral) {
	a.heap[i] = d
	e := a.index[d.seq]
	e.at = int32(i)
	a.index[d.seq] = e
}

func (a *asideSet) unheap(i int) {
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

// up and down find the place for d, starting at i, which is free.
func (a *asideSet) up(i int, d deferral) {
	for i > 0 {
		parent := (i - 1) / 2
		if !d.before(a.heap[parent]) {
			break
		}
		a.set(i, a.heap[parent])
		i = parent
	}
	a.set(i, d)
}

func (a *asideSet) down(i int, d deferral) {
	for {
		child := 2*i + 1
		if child >= len(a.heap) {
			break
		}
		if child+1 < len(a.heap) && a.heap[child+1].before(a.heap[child]) {
			child++
		}
		if !a.heap[child].before(d) {
			break
		}
		a.set(i, a.heap[child])
		i = child
	}
	a.set(i, d)
}
