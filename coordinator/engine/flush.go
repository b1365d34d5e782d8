package engine

import (
	"sync/atomic"
	"time"
)

// flusher writes the records that passes have queued, where nothing is synced (--durability=replicated). A copy to the
// page cache takes less time than waking the journal's goroutine, so the goroutine that ran the pass makes it. A hung
// disk blocks that goroutine, so it first releases the run lock and, in the reader of a connection, the transport's
// lock.
//
// The loop's goroutine flushes the records of its own passes. An inline pass leaves its records to the next Flush. If
// none comes, the clock takes over (relieve).
type flusher struct {
	journal journal
	loops   []*loop
	due     atomic.Bool // an inline pass has queued records
}

// Flush writes the records that inline passes of this goroutine have queued, and runs the passes that follow. The
// caller must hold no lock: while the disk hangs, Flush does not return.
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

// flush writes the queued records. The caller then runs a pass of every loop, because a Synced during it wakes none.
func (f *flusher) flush() {
	for _, l := range f.loops {
		l.flushers.Add(1)
	}
	f.journal.Flush()
	for _, l := range f.loops {
		l.flushers.Add(-1)
	}
}

// flush is called by the loop's goroutine after a pass. It checks its queue afterwards.
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

// relieve runs the loops while a write hangs: the journal's goroutine writes the records whose flush has not come, and
// a loop whose own goroutine is in a flush gets its pass here. The clock calls it at each tick.
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

// Busy is the duration of each core loop's current pass since the first call that saw it, 0 if none runs; lock-free.
func (e *Engine) Busy() []time.Duration {
	busy := make([]time.Duration, len(e.loops))
	for i, l := range e.loops {
		busy[i] = l.passes.Busy()
	}
	return busy
}
