package sim

import "github.com/lockstepmq/lockstep/coordinator/replica"

// letter is one item in the event queue of a node's core loop: an event for a machine, or
// a function to call when all items before it have taken effect.
type letter struct {
	h  *host
	ev replica.Event // nil: the time
	do func()
}

// mail posts to the core loop, which takes all there is in one pass.
func (n *node) mail(l letter) {
	n.letters = append(n.letters, l)
	n.wake()
}

// wake begins a pass soon: the loop may be busy with other partitions, or wait for
// a processor.
func (n *node) wake() {
	if n.passing || len(n.letters) == 0 {
		return
	}
	n.passing = true
	w, boot := n.w, n.boot
	w.after(w.moment(), func() { n.post(boot, n.pass) })
}

// pass is one of the core loop, in the daemon's order: all machines are stepped,
// then all writes are submitted, then messages, reads and proposals leave; later,
// while channels and timers continue as it was before, views are published and answers
// given.
func (n *node) pass() {
	letters := n.letters
	n.letters = nil
	var touched []*host
	for _, l := range letters {
		if l.h == nil || l.h.gone {
			continue
		}
		if !l.h.touched {
			l.h.touched = true
			touched = append(touched, l.h)
			if n.w.now-l.h.ticked >= 10*millisecond {
				l.h.ticked = n.w.now
				l.h.do(replica.Tick{NowMS: n.nowMS()})
			}
		}
		if l.ev != nil {
			l.h.do(l.ev)
		}
	}
	for _, h := range touched {
		h.submit()
	}
	for _, h := range touched {
		if !h.deliver() {
			return // died
		}
	}
	w, boot := n.w, n.boot
	wait := w.moment()
	for _, h := range touched {
		if h.leads != 0 && (h.state.Role != replica.Leader || h.state.Epoch != h.leads) {
			wait += micros(w.rand.IntN(5000)) // its channels do not know yet
		}
	}
	w.after(wait, func() {
		n.post(boot, func() {
			for _, h := range touched {
				h.settle()
			}
			for _, l := range letters {
				if l.do != nil {
					l.do()
				}
			}
			n.passing = false
			n.wake()
		})
	})
}

// moment is how long a goroutine takes to come to its work, or to do it.
func (w *world) moment() micros {
	if w.rand.IntN(50) == 0 {
		return micros(w.rand.IntN(5000))
	}
	return micros(w.rand.IntN(100))
}
