package engine

import (
	"slices"
	"time"
)

const (
	// silence is how long a leader may serve after it last reached the metadata or
	// enough replicas: a successor may be at work.
	silence = time.Second
	// defaultSilent is the transport's.
	defaultSilent = 500 * time.Millisecond
)

// extendAll extends the fences of the partitions led here. While every broker answers they
// share one fence; else each has its own. trusted: the belief that peers answer is fresh. A
// process that is stopped again and again never trusts it; an answer of the metadata
// counts from its request. Partitions of a core loop that hangs are not extended.
func (e *Engine) extendAll(now time.Time, trusted bool) {
	shared := now.Add(e.unheard()).UnixNano()
	all := trusted && e.o.Reach.AllUp() && !slices.ContainsFunc(e.loops, (*loop).hung)
	if !all || e.fence.Load() <= now.UnixNano() { // the fence was closed: no consumer was woken
		for _, p := range e.Partitions() {
			switch {
			case !p.Leading() || e.loopOf(p.id).hung():
			case all:
				p.queue.Extend(shared)
			default:
				e.extend(p, now, trusted)
			}
		}
	}
	if all {
		e.fence.Store(shared)
	}
}

// extend lets a partition serve on while enough of its in-sync set answers, or else while
// the metadata does. The metadata is not enough for ordered channels: it may name a
// successor any moment, and no finish would be committed.
func (e *Engine) extend(p *Partition, now time.Time, trusted bool) {
	v, reached := p.View(), 0
	for _, m := range v.ISR {
		if e.o.Reach.Up(m.Node) {
			reached++
		}
	}
	if trusted && reached >= v.MinInSync {
		p.queue.Extend(now.Add(e.unheard()).UnixNano())
		return
	}
	p.queue.ExtendUnordered(e.o.Reach.Named(now).Add(silence).UnixNano())
}

// hung reports whether the present pass has been under way for so long that a successor may
// be at work before it ends: the machines of this loop do not step down.
func (l *loop) hung() bool { return l.passes.Busy() > silence/2 }

// unheard is how long a leader serves after it last believed in its replicas. A peer
// counts as up until it was silent for a while, so that much of the silence may be over.
func (e *Engine) unheard() time.Duration {
	silent := e.o.Silent
	if silent == 0 {
		silent = defaultSilent
	}
	return max(silence-silent, 2*tickEvery)
}

// extendEvery is how often partitions are let serve on. While a broker is away and
// there are ten thousand of them, each time costs a millisecond; an extension that
// comes a little later only ends a little earlier.
func (e *Engine) extendEvery() time.Duration { return max(e.unheard()/10, tickEvery) - tickEvery/2 }
