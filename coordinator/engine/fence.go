package engine

import (
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// silence is how long a leader may serve after it last reached the metadata or enough replicas. After that another
	// broker may lead.
	silence = time.Second
	// defaultSilent is the transport's default.
	defaultSilent = 500 * time.Millisecond
)

// extendAll extends the fences of the partitions led here. While every broker answers they share one fence; otherwise
// each has its own. trusted: the state of the peers is fresh. It never is fresh in a process that is repeatedly
// suspended; there only the metadata extends fences, because its answer counts from the time of the request. Partitions
// of a core loop that hangs are not extended.
func (e *Engine) extendAll(now time.Time, trusted bool) {
	shared := now.Add(e.unheard()).UnixNano()
	all := trusted && e.o.Reachability.AllUp() && !slices.ContainsFunc(e.loops, (*loop).hung)
	if !all || e.fence.Load() <= now.UnixNano() { // the fence was closed, so consumers must be woken
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

// extend extends a partition's fence while enough of its in-sync set answers, or else while the metadata does. For
// ordered channels the metadata is not enough: it may name a successor at any moment, and no finish would be committed.
func (e *Engine) extend(p *Partition, now time.Time, trusted bool) {
	if trusted && e.reachesMinimum(p) {
		p.queue.Extend(now.Add(e.unheard()).UnixNano())
		return
	}
	p.queue.ExtendUnordered(e.o.Reachability.Named(now).Add(silence).UnixNano())
}

// Replicates reports whether a minimum of a partition's in-sync set answers this broker.
func (e *Engine) Replicates(id ident.Partition) bool {
	p, ok := e.Partition(id)
	return ok && e.reachesMinimum(p)
}

func (e *Engine) reachesMinimum(p *Partition) bool {
	v, reached := p.View(), 0
	for _, m := range v.ISR {
		if e.o.Reachability.Up(m.Node) {
			reached++
		}
	}
	return reached >= v.MinInSync
}

// hung reports whether the current pass takes so long that another broker may lead before it ends. Until then the
// machines of this loop do not step down.
func (l *loop) hung() bool { return l.passes.Busy() > silence/2 }

// unheard is how long a leader serves after its replicas last counted as up. A peer counts as up until it has been
// silent for a while, so part of that time may be over already.
func (e *Engine) unheard() time.Duration {
	silent := e.o.Silent
	if silent == 0 {
		silent = defaultSilent
	}
	return max(silence-silent, 2*tickEvery)
}

// extendEvery is the period of extendAll. It is longer than a tick because, while a broker is away, each run costs a
// millisecond for ten thousand partitions. A longer period is harmless: a leader that loses contact stops serving at
// most one period earlier than it has to.
func (e *Engine) extendEvery() time.Duration { return max(e.unheard()/10, tickEvery) - tickEvery/2 }
