package gateway

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// pieceBytes is the size of the pieces into which deliver copies small messages.
const pieceBytes = 4 << 10

// pieces copies messages out of a frame, several into one piece of memory.
type pieces struct{ rest []byte }

func (p *pieces) copy(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	if len(b) > cap(p.rest)-len(p.rest) {
		p.rest = make([]byte, 0, max(len(b), pieceBytes))
	}
	from := len(p.rest)
	p.rest = append(p.rest, b...)
	return p.rest[from:len(p.rest):len(p.rest)]
}

// deliver adds the deliveries of a frame to the buffers of their streams. It copies their messages, unless there is
// only one: a message that waits for its client would otherwise keep its whole frame in memory, up to 1 MiB.
func (s *subscriptions) deliver(payload []byte, count int) error {
	records, rest, err := wire.Table(payload, count, wire.DeliverySize)
	if err != nil {
		return err
	}
	var own pieces
	run := make([]api.Delivery, 0, count) // consecutive deliveries of one stream
	var stream uint64
	for ; len(records) > 0; records = records[wire.DeliverySize:] {
		id, d, after, err := wire.DecodeDelivery(records, rest)
		if err != nil {
			return err
		}
		if id != stream {
			s.arrive(stream, run)
			stream, run, own = id, run[:0], pieces{}
		}
		if count > 1 {
			d.Message.Header, d.Message.Body = own.copy(d.Message.Header), own.copy(d.Message.Body)
		}
		run, rest = append(run, d), after
	}
	s.arrive(stream, run)
	return nil
}

// arrive adds deliveries to a stream's buffer. Deliveries of an abandoned stream are dropped. Those for which memory is
// short return to the leader.
func (s *subscriptions) arrive(stream uint64, run []api.Delivery) {
	if len(run) == 0 {
		return
	}
	h := s.find(stream)
	if h == nil {
		return
	}
	h.sub.mu.Lock()
	defer h.sub.mu.Unlock()
	r := h.remote
	if r == nil || r.stream != stream || r.buffer.len()+len(run) > 2*maxCredit {
		return
	}
	fit, short := h.sub.takeLocked(run, 2*waitingBytes)
	for i := range run[:fit] {
		run[i].Partition = h.id
		run[i].ID = api.MessageIDOf(h.id, run[i].Message.Seq)
	}
	r.buffer.push(run[:fit])
	h.sub.mu.waiting += size(run[:fit])
	switch {
	case fit < len(run):
		h.narrowLocked(short)
		h.sendUnseenLocked(wire.VerbRequeue, run[fit:])
	case h.sub.mu.waiting > waitingBytes:
		h.setCreditLocked(h.sub.creditLocked(h))
	}
	h.pause, h.missing = 0, 0
	h.sub.wake()
}

func (s *subscriptions) handle(v wire.Verb) {
	h := s.find(v.Stream)
	if h == nil {
		return
	}
	sub := h.sub
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.mu.over {
		return
	}
	if v.Kind == wire.VerbGone {
		h.goneLocked(v)
		return
	}
	if h.remote == nil || h.remote.stream != v.Stream {
		return
	}
	switch {
	case v.Kind&wire.VerbRefused != 0:
		v.Kind &^= wire.VerbRefused
		if h.held[v.Sequence].is(v.Epoch, v.Number) { // otherwise the client has finished or requeued it, and an entry is of a later delivery
			delete(h.held, v.Sequence)
		}
		if v.Argument != wire.Unseen && !h.wasResentLocked(v) { // otherwise the client did not send the verb
			h.refuse(v, outcome.ErrNotInFlight)
		}
		sub.wake()
	case v.Kind == wire.VerbRevoked: // it timed out, or its leader has settled it by its receipt
		if _, held := h.held[v.Sequence]; held {
			delete(h.held, v.Sequence)
			sub.idleLocked()
		}
		sub.freeWaitingLocked(h.remote.buffer.drop(v.Sequence))
		sub.wake()
	case v.Kind == wire.VerbDeleted:
		sub.endLocked()
	case v.Kind == wire.VerbMissing:
		now := h.sub.g.now()
		h.failedLocked(now)
		h.missingLocked(now)
	}
}

// goneLocked handles the answer of a leader that does not have the stream. The verb that the leader could not carry out
// is returned in the argument, and is sent again after the next opening.
func (h *partitionSubscription) goneLocked(v wire.Verb) {
	if kind := wire.VerbKind(v.Argument & 0xff); kind != 0 {
		back := v
		back.Kind, back.Argument = kind, v.Argument>>8
		delete(h.requeued, v.Sequence)
		h.addToBacklogLocked(back)
	}
	if h.remote != nil && h.remote.stream == v.Stream {
		h.missing = 0
		h.failedLocked(h.sub.g.now())
	}
}

// arrivals queues the deliveries of a stream that the client has not pulled. It reuses its array.
type arrivals struct {
	items []api.Delivery
	head  int
	bytes int // memory of the waiting messages
}

func (a *arrivals) len() int { return len(a.items) - a.head }

// waiting lists the deliveries. The slice is valid until the next change.
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

func weight(d *api.Delivery) int { return deliveryBytes + d.Message.Size() }

func size(run []api.Delivery) (bytes int) {
	for i := range run {
		bytes += weight(&run[i])
	}
	return bytes
}

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

func (a *arrivals) cut(n int) []api.Delivery {
	at := len(a.items) - n
	last := slices.Clone(a.items[at:])
	a.bytes -= size(last)
	clear(a.items[at:])
	a.items = a.items[:at]
	return last
}

// remove removes and returns the deliveries that are chosen.
func (a *arrivals) remove(chosen func(*api.Delivery) bool) (removed []api.Delivery) {
	kept := a.items[:a.head]
	for _, d := range a.waiting() {
		if chosen(&d) {
			removed = append(removed, d)
		} else {
			kept = append(kept, d)
		}
	}
	clear(a.items[len(kept):])
	a.items = kept
	a.bytes -= size(removed)
	return removed
}

// drop removes one message, if present, and returns its memory in bytes.
func (a *arrivals) drop(seq ident.Sequence) (bytes int) {
	at := slices.IndexFunc(a.waiting(), func(d api.Delivery) bool { return d.Message.Seq == seq })
	if at >= 0 {
		bytes = weight(&a.waiting()[at])
		a.bytes -= bytes
		a.items = slices.Delete(a.items, a.head+at, a.head+at+1)
	}
	return bytes
}
