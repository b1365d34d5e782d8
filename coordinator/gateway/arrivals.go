package gateway

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// arrivals queues the deliveries of a stream that the client has not pulled. It reuses its array.
type arrivals struct {
	items []api.Delivery
	head  int
	bytes int // memory of the waiting messages
}

func (a *arrivals) len() int { return len(a.items) - a.head }

// waiting is valid until the next change.
func (a *arrivals) waiting() []api.Delivery { return a.items[a.head:] }

func (a *arrivals) push(run []api.Delivery) {
	if a.head > 0 && len(a.items)+len(run) > cap(a.items) {
		n := copy(a.items, a.waiting())
		clear(a.items[n:])
		a.items, a.head = a.items[:n], 0
	}
	a.items = append(a.items, run...)
	a.bytes += size(run)
}

// deliveryBytes is the memory of a delivery without its message.
const deliveryBytes = 192

// weight is the memory of a delivery in bytes.
func weight(d *api.Delivery) int { return deliveryBytes + d.Message.Size() }

func size(run []api.Delivery) (bytes int) {
	for i := range run {
		bytes += weight(&run[i])
	}
	return bytes
}

// take moves the first n to dst.
func (a *arrivals) take(n int, dst []api.Delivery) []api.Delivery {
	first := a.waiting()[:n]
	dst = append(dst, first...)
	if n == len(a.waiting()) {
		a.bytes = 0
	} else {
		a.bytes -= size(first)
	}
	clear(first)
	if a.head += n; a.len() == 0 {
		a.items, a.head = a.items[:0], 0
	}
	return dst
}

// cut removes and returns the last n.
func (a *arrivals) cut(n int) []api.Delivery {
	at := len(a.items) - n
	last := slices.Clone(a.items[at:])
	a.bytes -= size(last)
	clear(a.items[at:])
	a.items = a.items[:at]
	return last
}

// drop removes one message, if it is there, and returns its memory.
func (a *arrivals) drop(seq ident.Sequence) (bytes int) {
	at := slices.IndexFunc(a.waiting(), func(d api.Delivery) bool { return d.Message.Seq == seq })
	if at >= 0 {
		bytes = weight(&a.waiting()[at])
		a.bytes -= bytes
		a.items = slices.Delete(a.items, a.head+at, a.head+at+1)
	}
	return bytes
}
