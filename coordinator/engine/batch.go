package engine

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

const (
	// groupBytes bounds the puts of one Propose event.
	groupBytes = 1 << 20
	// eagerBytes of puts are proposed even while an earlier submission is being synced.
	eagerBytes = 256 << 10
	// Puts of gatherBytes or more do not wait for the commit of earlier ones, and no put waits longer than gatherFor.
	gatherBytes = 16 << 10
	gatherFor   = 10 * time.Millisecond
)

// gather adds a put to the next group of its partition, or refuses it before anything is written.
func (l *loop) gather(p *Partition, e *event) {
	if refused := l.refusal(p, &e.draft); refused != 0 {
		l.answer(e.done, outcome.Completion{Outcome: refused})
		return
	}
	if p.putBytes > 0 && p.putBytes+e.draft.Size() > groupBytes {
		l.propose(p)
	}
	l.touch(p)
	l.o.Metrics.Took(metrics.StageQueue, l.now.Sub(e.at))
	t := ticket{done: e.done, isPut: true, at: e.at, proposed: l.now, messages: int(e.draft.Count), bytes: e.draft.BodyBytes()}
	if l.o.Trace != nil {
		t.traced = l.o.Trace(&e.draft)
	}
	p.puts = append(p.puts, replica.Put{Draft: e.draft, Ticket: p.newTicket(t)})
	p.putBytes += e.draft.Size()
}

// propose passes the gathered puts to the machine as one group.
func (l *loop) propose(p *Partition) {
	if len(p.puts) == 0 {
		return
	}
	puts := p.puts
	p.puts, p.putBytes = nil, 0 // the machine may keep them
	p.machine.Step(replica.Propose{Puts: puts, TimeNS: l.now.UnixNano()}, &p.out)
}

// release proposes the gathered puts that need not wait. Unless there are many, puts wait
//
//   - while a submission of this loop is being synced: the journal would not write them earlier anyway;
//   - while puts of their partition are in flight: an append costs all replicas the same work whether it
//     carries one put or fifty;
//   - and after that briefly, in a batch window.
//
// So groups grow with the load, and an uncontended put never waits.
func (l *loop) release() {
	syncing := len(l.unsynced) > 0
	if !syncing {
		for _, p := range l.awaitSync {
			if p.awaitsSync = false; len(p.puts) > 0 {
				l.touch(p)
			}
		}
		clear(l.awaitSync)
		l.awaitSync = l.awaitSync[:0]
	}
	for _, p := range l.touched {
		committing := p.machine.Committing()
		if p.window.inFlight > 0 && !committing {
			p.window.end(l.now, len(p.puts))
		}
		switch {
		case len(p.puts) == 0:
		case p.putBytes >= eagerBytes || !syncing && !l.gathers(p, committing):
			p.window.begin(l.now, len(p.puts))
			l.propose(p)
		case syncing && !p.awaitsSync:
			p.awaitsSync = true
			l.awaitSync = append(l.awaitSync, p)
		}
	}
}

// gathers reports whether a partition's puts wait for the commit of those in flight, or in a batch window. The wait is
// short, because puts that cannot be committed now can be answered only by the machine.
func (l *loop) gathers(p *Partition, committing bool) bool {
	switch {
	case p.putBytes >= gatherBytes:
		return false
	case committing:
		return l.now.Sub(p.window.proposed) < gatherFor
	case p.window.open(l.now, len(p.puts), p.putBytes):
		l.openWindow(p)
		return true
	}
	return false
}

// openWindow schedules a pass for the moment at which the earliest open batch window closes, at most windowMost later.
func (l *loop) openWindow(p *Partition) {
	if p.awaitsWindow {
		return
	}
	p.awaitsWindow = true
	l.awaitWindow = append(l.awaitWindow, p)
	if len(l.awaitWindow) == 1 {
		l.windows.Reset(p.window.closes.Sub(l.now))
	}
}

// closeWindows touches the partitions with a batch window. release reopens a window that is not over.
func (l *loop) closeWindows() {
	for _, p := range l.awaitWindow {
		if p.awaitsWindow = false; len(p.puts) > 0 {
			l.touch(p)
		}
	}
	clear(l.awaitWindow)
	l.awaitWindow = l.awaitWindow[:0]
}

const (
	// windowMost bounds a batch window.
	windowMost = time.Millisecond
	// windowBytes is the size from which a group is submitted without a batch window.
	windowBytes = gatherBytes / 2
	// decay is the weight of the past when a group is judged.
	decay = 7.0 / 8
	// If the puts that arrive while a group is in flight exceed this fraction of the group, windows are judged useless.
	arrivals = 1.0 / 4
	// backoffMost bounds the number of consecutive groups without a window.
	backoffMost = 63
)

// window is the adaptive batching of one partition (docs/adr/0009). Producers that wait for each answer fall into two
// halves: while the puts of one half are in flight the others gather, and each put takes two rounds. So after a commit
// the gathered puts wait for as many more as were answered, for three quarters of the time that the commit took: less
// than the round that a put loses by coming too late.
//
// The window was useful if hardly any puts arrive while the group is in flight. If many do, because their producers do
// not wait for answers or do other work in between, the next groups go without a window, in growing numbers.
type window struct {
	proposed time.Time // when puts were last proposed
	inFlight int       // puts that are being committed
	waited   bool      // the puts in flight have waited in a window
	size     int       // size of the next group, which closes the window; at most 1 = no window
	closes   time.Time // at the latest

	answered, arrived float64 // recent puts: of groups that had waited, and that arrived while those were in flight
	backoff, skip     int     // groups to go without a window; how many of them are left
}

// begin records that puts are now in flight.
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
