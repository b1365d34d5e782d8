package nsqd

import (
	"cmp"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// delivery is one delivery that is neither finished, requeued nor timed out.
type delivery struct {
	seq      ident.Sequence
	sub      *Subscriber // stays set after the subscriber has left without requeueing
	deadline int64       // unix ns
	start    int64       // unix ns of the delivery; TOUCH is capped relative to it
	putTime  int64       // unix ns of the publish, for the latency
	name                 // unique among the deliveries of the partition
	attempts uint16      // including this delivery
	deferred bool        // the sequence is in the deferred set
	moving   bool        // dead, and the broker is moving it to the dead letters
	expired  bool        // dead, because it has outlived its time to live
	heap     int32

	next, prev *delivery // the subscriber's list
}

// name distinguishes the deliveries of a partition. Later ones are greater.
type name struct {
	epoch  ident.Epoch // of the leader that made the delivery, which may be an earlier one
	number uint64      // the leader counts its deliveries
}

func (n name) compare(o name) int {
	return cmp.Or(cmp.Compare(n.epoch, o.epoch), cmp.Compare(n.number, o.number))
}

// inFlightSet finds deliveries by sequence and by deadline. It holds no bodies: a message that is
// delivered again is read again, so memory does not depend on the size of messages.
type inFlightSet struct {
	bySeq map[ident.Sequence]*delivery
	heap  []*delivery
	free  []*delivery
	// withdrawn holds the last delivery of each message that was withdrawn from its subscriber, because the attempts
	// alone cannot distinguish it from earlier deliveries.
	withdrawn map[ident.Sequence]name
}

// maxFree bounds the number of deliveries kept for reuse.
const maxFree = 4096

func (f *inFlightSet) len() int { return len(f.bySeq) }

// longest is how long the oldest delivery has been in flight.
func (f *inFlightSet) longest(now int64) (age time.Duration) {
	for _, x := range f.heap {
		age = max(age, time.Duration(now-x.start))
	}
	return age
}

// add puts a copy of v into flight.
func (f *inFlightSet) add(v delivery) {
	var x *delivery
	if n := len(f.free); n > 0 {
		x, f.free = f.free[n-1], f.free[:n-1]
	} else {
		x = new(delivery)
	}
	*x = v
	if f.bySeq == nil {
		f.bySeq = make(map[ident.Sequence]*delivery)
	}
	f.bySeq[x.seq] = x
	f.heap = append(f.heap, x)
	f.up(len(f.heap)-1, x)
	f.link(x)
}

// remove removes x. The caller may read x until the next add.
func (f *inFlightSet) remove(x *delivery) {
	delete(f.bySeq, x.seq)
	i, last := int(x.heap), len(f.heap)-1
	moved := f.heap[last]
	f.heap[last] = nil
	f.heap = f.heap[:last]
	if i != last {
		f.fix(i, moved)
	}
	f.unlink(x)
	if len(f.free) < maxFree {
		f.free = append(f.free, x)
	}
}

// setDeadline moves x to another deadline.
func (f *inFlightSet) setDeadline(x *delivery, deadline int64) {
	x.deadline = deadline
	f.fix(int(x.heap), x)
}

// next is the earliest deadline, or never.
func (f *inFlightSet) next() int64 {
	if len(f.heap) == 0 {
		return never
	}
	return f.heap[0].deadline
}

// transfer assigns a delivery to another subscriber.
func (f *inFlightSet) transfer(x *delivery, to *Subscriber) {
	f.unlink(x)
	x.sub = to
	f.link(x)
}

// detach unlinks x from a subscriber that left. x stays in flight.
func (f *inFlightSet) detach(x *delivery) { f.unlink(x); x.next, x.prev = nil, nil }

func (f *inFlightSet) link(x *delivery) {
	s := x.sub
	x.next, x.prev = s.deliveries, nil
	if s.deliveries != nil {
		s.deliveries.prev = x
	}
	s.deliveries = x
	s.inFlight++
}

func (f *inFlightSet) unlink(x *delivery) {
	s := x.sub
	if x.prev == nil && s.deliveries != x {
		return // detached already
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		s.deliveries = x.next
	}
	s.inFlight--
}

func (f *inFlightSet) set(i int, x *delivery) { f.heap[i], x.heap = x, int32(i) }

func (f *inFlightSet) fix(i int, x *delivery) {
	if i > 0 && x.deadline < f.heap[(i-1)/4].deadline {
		f.up(i, x)
	} else {
		f.down(i, x)
	}
}

// Each node of the heap has four children. A finish in order removes the earliest deadline, and passes half as many
// levels as in a binary heap.
func (f *inFlightSet) up(i int, x *delivery) {
	for i > 0 {
		parent := (i - 1) / 4
		if f.heap[parent].deadline <= x.deadline {
			break
		}
		f.set(i, f.heap[parent])
		i = parent
	}
	f.set(i, x)
}

func (f *inFlightSet) down(i int, x *delivery) {
	for {
		first := 4*i + 1
		if first >= len(f.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(f.heap)); c++ {
			if f.heap[c].deadline < f.heap[least].deadline {
				least = c
			}
		}
		if f.heap[least].deadline >= x.deadline {
			break
		}
		f.set(i, f.heap[least])
		i = least
	}
	f.set(i, x)
}
