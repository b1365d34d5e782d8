package nsqd

import "github.com/lockstepmq/lockstep/internal/ident"

// flight is one delivery that is neither finished, requeued nor timed out.
type flight struct {
	seq      ident.Sequence
	sub      *Subscriber // stays set when the subscriber left without requeueing
	deadline int64       // unix ns
	start    int64       // unix ns of the delivery; TOUCH is capped relative to it
	put      int64       // unix ns of the put, for the latency
	attempts uint16      // this delivery included
	aside    bool        // the sequence is in the aside set
	moving   bool        // dead, and handed to the broker
	heap     int32

	next, prev *flight // the subscriber's list
}

// flights finds deliveries by sequence and by deadline. It holds no bodies: what
// comes back is read again, so memory does not depend on the messages' size.
type flights struct {
	bySeq map[ident.Sequence]*flight
	heap  []*flight
	free  []*flight
}

// maxFree bounds the flights kept for reuse.
const maxFree = 4096

func (f *flights) len() int { return len(f.bySeq) }

// add puts a copy of v into flight.
func (f *flights) add(v flight) *flight {
	var x *flight
	if n := len(f.free); n > 0 {
		x, f.free = f.free[n-1], f.free[:n-1]
	} else {
		x = new(flight)
	}
	*x = v
	if f.bySeq == nil {
		f.bySeq = make(map[ident.Sequence]*flight)
	}
	f.bySeq[x.seq] = x
	f.heap = append(f.heap, x)
	f.up(len(f.heap)-1, x)
	f.link(x)
	return x
}

// remove takes x out. x may be read until the next add.
func (f *flights) remove(x *flight) {
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

// delay moves x to another deadline.
func (f *flights) delay(x *flight, deadline int64) {
	x.deadline = deadline
	f.fix(int(x.heap), x)
}

// next is the earliest deadline, or never.
func (f *flights) next() int64 {
	if len(f.heap) == 0 {
		return never
	}
	return f.heap[0].deadline
}

// hand makes a delivery another subscriber's.
func (f *flights) hand(x *flight, to *Subscriber) {
	f.unlink(x)
	x.sub = to
	f.link(x)
}

// disown unlinks x from a subscriber that left; it stays in flight.
func (f *flights) disown(x *flight) { f.unlink(x); x.next, x.prev = nil, nil }

func (f *flights) link(x *flight) {
	s := x.sub
	x.next, x.prev = s.flights, nil
	if s.flights != nil {
		s.flights.prev = x
	}
	s.flights = x
	s.inFlight++
}

func (f *flights) unlink(x *flight) {
	s := x.sub
	if x.prev == nil && s.flights != x {
		return // disowned already
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		s.flights = x.next
	}
	s.inFlight--
}

func (f *flights) set(i int, x *flight) { f.heap[i], x.heap = x, int32(i) }

func (f *flights) fix(i int, x *flight) {
	if i > 0 && x.deadline < f.heap[(i-1)/4].deadline {
		f.up(i, x)
	} else {
		f.down(i, x)
	}
}

// The heap has four children a node: removing the earliest, which is what a
// finish in order does, touches half the levels of a binary one.
func (f *flights) up(i int, x *flight) {
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

func (f *flights) down(i int, x *flight) {
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
