package sim

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// network joins every pair of brokers by one link in each direction. A link
// keeps order as a connection does, unless a fault disturbs it; a message dies
// with the process it was sent to.
type network struct {
	w     *world
	links [][]link // [from][to]
}

type link struct {
	cut     int // how many faults cut it
	loss    int // per cent
	dup     int // per cent
	shuffle bool
	delay   micros // on top of the usual
	last    micros // arrival of the newest message
}

func (t *network) open(from, to int) bool { return t.links[from][to].cut == 0 }

// both reports whether a connection could be made.
func (t *network) both(a, b int) bool { return t.open(a, b) && t.open(b, a) }

// send transmits one message of a partition from a host to a node.
func (t *network) send(h *host, to *node, e replica.Envelope) {
	w, l := t.w, &t.links[h.n.index][to.index]
	if w.rand.IntN(100) < l.loss {
		return
	}
	var ev replica.Event = replica.Received{
		From: replica.Peer{Node: h.n.name, Incarnation: h.n.last, Store: e.Msg.Store}, Msg: copyMessage(e.Msg),
	}
	copies := 1
	if l.dup > 0 && w.rand.IntN(100) < l.dup {
		copies = 2
	}
	for range copies {
		at := t.arrival(l, e.Bulk)
		boot := to.boot
		w.at(at, func() {
			if t.open(h.n.index, to.index) {
				to.post(boot, func() { to.receive(h.part, ev) })
			}
		})
	}
}

func (t *network) arrival(l *link, bulk bool) micros {
	w := t.w
	at := w.now + 50 + micros(w.rand.IntN(250)) + l.delay
	if l.cut > 0 || w.rand.IntN(400) == 0 { // retransmitted: late, or never if the cut lasts
		at += micros(w.rand.Int64N(int64(t.retransmission())))
	}
	if bulk {
		at += micros(w.rand.IntN(2000))
	}
	if l.shuffle {
		return at + micros(w.rand.IntN(int(10*millisecond)))
	}
	if !bulk {
		at = max(at, l.last)
		l.last = at
	}
	return at
}

// retransmission is the longest delay of a lost message. In a healthy network no node is
// judged down for one lost heartbeat, and a round trip is within the write deadline. A
// network with faults stalls for longer.
func (t *network) retransmission() micros {
	if t.w.healed {
		return t.w.times.lag
	}
	return 2 * t.w.times.isr
}

// copyMessage takes the slices out of the machine's hands, as encoding does.
func copyMessage(m replica.Message) replica.Message {
	m.Batches = append([]queue.Batch(nil), m.Batches...)
	m.Epochs = slices.Clone(m.Epochs)
	m.State.Delta = slices.Clone(m.State.Delta)
	return m
}
