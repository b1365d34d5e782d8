package engine

import (
	"sync/atomic"
	"time"
)

// flusher writes the records that passes have queued, where nothing is synced
// (--durability=replicated). A copy to the page cache takes less time than a wake-up of the
// journal's goroutine, so the goroutine that ran the pass makes the copy. A hung disk blocks
// that goroutine without an error. Therefore a flush runs under no lock: after the run lock is
// released, and in the reader of a connection after the transport's lock is released.
//
// The loop's goroutine flushes the records of its own passes. An inline pass leaves them to the
// next Flush. The clock makes up for a Flush that does not come (relieve).
type flusher struct {
	journal Journal
	loops   []*loop
	due     atomic.Bool // an inline pass has queued something
}

// Flush writes the records that inline passes of this goroutine have queued, and runs the
// passes that follow. The caller holds no lock. While the disk hangs it does not return.
func (e *Engine) Flush() {
	for range inlineMost {
		if !e.flusher.due.Load() || !e.flusher.due.Swap(false) {
			return
		}
		e.flusher.flush()
		for _, l := range e.loops {
			l.runNext()
		}
	}
	if e.flusher.due.Swap(false) {
		e.o.Journal.Wake()
	}
}

// flush writes the queued records. Afterwards the caller runs a pass of every loop, or wakes
// its goroutine: a Synced during the flush wakes no goroutine.
func (f *flusher) flush() {
	for _, l := range f.loops {
		l.flushers.Add(1)
	}
	f.journal.Flush()
	for _, l := range f.loops {
		l.flushers.Add(-1)
	}
}

// flush is called by the loop's goroutine after a pass. It looks at its queue afterwards.
func (l *loop) flush() {
	if !l.queued {
		return
	}
	l.queued = false
	l.flushing.Store(true)
	l.flusher.flush()
	l.flushing.Store(false)
	for _, other := range l.flusher.loops {
		if other != l {
			other.runNext()
		}
	}
}

// runNext runs the pass that follows a flush, if there are events.
func (l *loop) runNext() {
	if l.o.Linger == 0 {
		l.runInline()
	} else {
		l.wakeIfPending()
	}
}

// relieve keeps the loops going while a write hangs. The journal's goroutine writes the
// records that wait for a flush that has not come. A loop whose own goroutine is in a flush
// gets its pass here. Called by the clock, for each tick.
func (e *Engine) relieve() {
	if e.flusher.due.Load() && e.flusher.due.Swap(false) {
		e.o.Journal.Wake()
	}
	for _, l := range e.loops {
		if l.flushing.Load() && l.run.TryLock() {
			l.inline = true
			l.pass(true, true)
			l.inline = false
			l.run.Unlock()
		}
	}
}

// Busy is how long the present pass of each core loop has been under way, 0 if none is. Any
// goroutine; it takes no lock. It counts from the first call that saw the present pass.
func (e *Engine) Busy() []time.Duration {
	busy := make([]time.Duration, len(e.loops))
	for i, l := range e.loops {
		busy[i] = l.passes.Busy()
	}
	return busy
}
