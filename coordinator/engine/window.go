package engine

import "time"

const (
	// windowMost bounds a batch window.
	windowMost = time.Millisecond
	// windowBytes is the size from which a group is submitted without a batch window.
	windowBytes = gatherBytes / 2
	// decay is the weight of the past when a group is judged.
	decay = 7.0 / 8
	// If more puts than this part of a group arrive while it is in flight, windows are judged useless.
	arrivals = 1.0 / 4
	// backoffMost bounds the number of consecutive groups without a window.
	backoffMost = 63
)

// window is the adaptive batching of one partition (docs/adr/0009). Producers that wait for each answer fall into two
// halves: while the puts of one half are in flight the others gather, and each put takes two rounds. So after a commit
// the gathered puts wait for as many more as were answered, for three quarters of the time that it took.
//
// The window was right if hardly any puts come while the group is in flight. If many do, because their producers do not
// wait for answers or do other work in between, the next groups go without a window, in growing numbers.
type window struct {
	proposed time.Time // when puts were last proposed
	inFlight int       // puts that are being committed
	waited   bool      // these have waited in a window
	size     int       // of the next group, which closes the window; at most 1 = no window
	closes   time.Time // at the latest

	answered, arrived float64 // puts of groups that had waited, and that have arrived since; lately
	backoff, skip     int     // groups to go without a window; how many of them are left
}

// begin notes that puts are in flight from now on.
func (w *window) begin(now time.Time, puts int) {
	w.inFlight += puts
	w.proposed, w.waited, w.size = now, w.size > 1, 0
}

// end notes that all puts in flight are committed, and how many have gathered.
func (w *window) end(now time.Time, gathered int) {
	answered := w.inFlight
	w.inFlight = 0
	if w.waited {
		w.judge(float64(answered), float64(gathered))
	}
	if w.skip > 0 {
		w.skip--
		return
	}
	w.size, w.closes = answered+gathered, now.Add(min(now.Sub(w.proposed)*3/4, windowMost))
}

// judge decides from a group that had waited how many groups go without a window.
func (w *window) judge(answered, arrived float64) {
	w.answered = w.answered*decay + answered
	w.arrived = w.arrived*decay + arrived
	if w.arrived <= w.answered*arrivals {
		w.backoff /= 2
		return
	}
	w.backoff = min(2*w.backoff+1, backoffMost)
	w.skip = w.backoff
}

func (w *window) open(now time.Time, puts, bytes int) bool {
	return puts < w.size && bytes < windowBytes && now.Before(w.closes)
}
