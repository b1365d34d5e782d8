package coordinator

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// silence is how long a leader may serve after it last reached the metadata or
	// enough replicas: a successor may be at work.
	silence = time.Second
	// defaultSilent is rpc's.
	defaultSilent = 500 * time.Millisecond
	// stall is a gap between two ticks after which nothing that this process
	// believes of its peers is trusted until it had time to hear them again.
	stall = 300 * time.Millisecond
	// stepLeast is by how much the clock must be set back to be looked after. Less
	// is the time between reading the two clocks, on a busy machine.
	stepLeast = 100 * time.Millisecond
	// probeEvery is how often the metadata is asked while replicas are missing,
	// heardEvery how often else.
	probeEvery, heardEvery = 200 * time.Millisecond, time.Second
)

// keepTime drives the channels led here: what is due, the deltas of what
// changed, and the fence of a leader that nobody hears. Started by start, ends
// with the broker.
func (b *Broker) keepTime(ctx context.Context) {
	last, trusted, extended := time.Now(), time.Now(), time.Time{}
	var due []*hosted
	every(ctx, tickEvery, func() {
		now := time.Now()
		if now.Sub(last) > stall {
			trusted = now.Add(stall)
		}
		if by := now.Sub(last) - wallTime(now).Sub(wallTime(last)); by > stepLeast {
			b.setBack(by)
		}
		last = now
		if now.Sub(extended) >= b.extendEvery() {
			extended = now
			b.extendAll(now, now.After(trusted))
		}
		due = b.agenda.take(now.Add(tickEvery).UnixNano(), due[:0])
		for _, h := range due {
			b.drive(h, now.UnixNano())
		}
		clear(due)
	})
}

// wallTime takes the monotonic clock off: times without it differ by what the
// wall clock says.
func wallTime(t time.Time) time.Time { return t.Round(0) }

// setBack keeps fences, timeouts and the agenda, which are in wall time, from
// waiting for an hour to pass twice when somebody has set the clock back by one.
// Set forward, it ends them early: messages come again, and the fence is renewed.
func (b *Broker) setBack(by time.Duration) {
	b.log.WithField("by", by).Warn("the clock was set back; what is delayed comes so much later")
	if b.fence.Load() != 0 {
		b.fence.Add(-by.Nanoseconds())
	}
	for _, h := range b.hosted() {
		h.queue.SetBack(by.Nanoseconds())
		b.agenda.put(h, 0)
	}
}

// drive does what a partition's channels have to do, and notes what is left.
func (b *Broker) drive(h *hosted, nowNS int64) {
	if !h.Leading() {
		return // Lead asks again
	}
	if h.queue.Due() <= nowNS {
		h.queue.Expire(nowNS)
	}
	h.flush()
	if h.queue.Dead() {
		h.dead.Store(true)
		b.dead.Store(true)
	}
	at := h.queue.Due()
	if at < nowNS+tickEvery.Nanoseconds() {
		b.soon.tell(h)
	}
	if at < math.MaxInt64 {
		b.agenda.put(h, at)
	}
}

// flush hands the machine what changed in the channels since the last time.
func (h *hosted) flush() {
	if h.queue.Dirty() {
		h.queue.Flush()
	}
}

// extendAll lets the partitions led here serve on. While every broker answers
// they share one fence; else each has its own. trusted: what is believed of them is
// fresh. A process that is stopped again and again never comes to that; what the
// metadata answered says when it was asked.
func (b *Broker) extendAll(now time.Time, trusted bool) {
	shared := now.Add(b.unheard()).UnixNano()
	all := trusted && b.members.allUp(b.catalog.nodes())
	if !all || b.fence.Load() <= now.UnixNano() { // the fence was closed: nobody was woken meanwhile
		for _, h := range b.hosted() {
			switch {
			case !h.Leading():
			case all:
				h.queue.Extend(shared)
			default:
				b.extend(h, now, trusted)
			}
		}
	}
	if all {
		b.fence.Store(shared)
	}
}

// extend lets a partition serve on while enough of its in-sync set answers, or
// else while the metadata does. Ordered channels are not content with the
// metadata: it may name a successor any moment, and no finish would be committed.
func (b *Broker) extend(h *hosted, now time.Time, trusted bool) {
	v, reached := h.View(), 0
	for _, m := range v.ISR {
		if b.members.up(m.Node) {
			reached++
		}
	}
	if trusted && reached >= v.MinInSync {
		h.queue.Extend(now.Add(b.unheard()).UnixNano())
		return
	}
	age := now.Sub(b.contact.since)
	b.contact.wanted.Store(int64(age))
	h.queue.ExtendUnordered(now.Add(time.Duration(b.contact.at.Load()) + silence - age).UnixNano())
}

// unheard is how long a leader serves after it last believed in its replicas.
// A peer counts as up for as long as its last frame is not older than the time
// after which it is called silent, so that much of the silence may be over.
func (b *Broker) unheard() time.Duration {
	silent := b.o.RPC.Silent
	def(&silent, defaultSilent)
	return max(silence-silent, 2*tickEvery)
}

// extendEvery is how often partitions are let serve on. While a broker is away and
// there are ten thousand of them, each time costs a millisecond; an extension that
// comes a little later only ends a little earlier.
func (b *Broker) extendEvery() time.Duration { return max(b.unheard()/10, tickEvery) - tickEvery/2 }

// contact is when the metadata last answered, and when with this broker's
// registration in it.
type contact struct {
	since             time.Time    // set before the start: it answered then
	wanted, at, heard atomic.Int64 // ns after that, which no setting of the clock changes
}

// metadataUnheard is how long the metadata has not answered, 0 if for less than a
// registration lives: an election of its own takes a moment, too.
func (b *Broker) metadataUnheard() time.Duration {
	d := time.Since(b.contact.since) - time.Duration(b.contact.heard.Load())
	if d < b.o.SessionTTL {
		return 0
	}
	return d
}

// keepContact asks the metadata, more often while a partition led here misses
// replicas, and says when it does not answer: all goes on without it until a
// leader is lost. Started by start, ends with the broker.
func (b *Broker) keepContact(ctx context.Context) {
	var last time.Duration
	var told bool
	every(ctx, probeEvery, func() {
		asked := time.Since(b.contact.since)
		if int64(asked)-b.contact.wanted.Load() > 2*probeEvery.Nanoseconds() && asked-last < heardEvery {
			return
		}
		last = asked
		get, cancel := context.WithTimeout(ctx, silence/2)
		e, err := b.meta.Get(get, b.keys.Live(b.self))
		cancel()
		if err == nil || errors.Is(err, meta.ErrNotFound) {
			b.contact.heard.Store(int64(asked))
		}
		if err == nil && ident.Incarnation(e.Create) == b.Incarnation() {
			b.contact.at.Store(int64(asked))
		}
		switch silent := b.metadataUnheard() > 0; {
		case silent && !told:
			b.log.WithError(err).Warn("METADATA does not answer: no leader can be replaced, nothing can be created or changed")
			told = true
		case told && !silent:
			b.log.Info("METADATA answers again")
			told = false
		}
	})
}
