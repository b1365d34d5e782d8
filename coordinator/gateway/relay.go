package gateway

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/rpc"
)

// handleRelay takes a frame about streams: those that a peer has open here, and
// those that this broker has open there.
func (g *Gateway) handleRelay(from ident.Node, _ ident.Incarnation, f rpc.Received) error {
	var h wire.Relay
	if err := h.Decode(f.Header); err != nil {
		return fmt.Errorf("relay header: %w", err)
	}
	switch h.Kind {
	case wire.FrameDeliver:
		g.o.Metrics.Add(metrics.MessagesRelayed, h.Count)
		return g.subs.deliver(f.Payload, h.Count)
	case wire.FrameOpen:
		held, err := wire.DecodeVerbs(f.Payload, h.Count)
		if err != nil {
			return err
		}
		if h.Open == nil || len(h.Open.TopicName) > wire.MaxName || len(h.Open.Channel) > wire.MaxName {
			return fmt.Errorf("%w: opening", wire.ErrFrame)
		}
		g.server.open(from, h.Open, held)
		return nil
	case wire.FrameVerbs:
		list, err := wire.DecodeVerbs(f.Payload, h.Count)
		if err != nil {
			return err
		}
		for _, v := range list {
			if v.Kind >= wire.VerbRevoked {
				g.subs.handle(v)
			} else {
				g.server.handle(from, v)
			}
		}
		return nil
	}
	return fmt.Errorf("%w: relay kind %d", wire.ErrFrame, h.Kind)
}

// pieceBytes is the size of the pieces into which deliver copies small messages.
const pieceBytes = 4 << 10

// pieces copies messages out of a frame, a few into each piece of memory.
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

// deliver puts the deliveries of a frame into the buffers of their streams. It copies their messages, unless there is one
// only: one that waits for its client would otherwise keep all messages of its frame, up to 1 MiB, also those of other
// clients.
func (s *subscriptions) deliver(payload []byte, count int) error {
	records, rest, err := wire.Table(payload, count, wire.DeliverySize)
	if err != nil {
		return err
	}
	var own pieces
	run := make([]api.Delivery, 0, count) // deliveries of one stream, one after the other
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

// arrive adds deliveries to a stream's buffer. Those of a stream that was given up are
// dropped. Those that find no memory go back to the leader.
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
		h.sendBackLocked(run[fit:])
	case h.sub.mu.waiting > waitingBytes:
		h.setCreditLocked(h.sub.creditLocked(h))
	}
	h.pause, h.missing = 0, 0
	h.sub.wake()
}

// handle takes a leader's verb about one of this broker's streams.
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
		if h.held[v.Sequence].is(v) { // a finish or requeue left the table when it was sent: a message that is held now came later
			delete(h.held, v.Sequence)
		}
		if v.Argument != wire.Unseen { // else the client did not ask for it
			h.refuse(v, api.ErrNotInFlight)
		}
		sub.wake()
	case v.Kind == wire.VerbRevoked:
		h.revokedLocked(v.Sequence)
	case v.Kind == wire.VerbDeleted:
		sub.endLocked()
	case v.Kind == wire.VerbMissing:
		now := h.sub.g.now()
		h.failedLocked(now)
		h.missingLocked(now)
	}
}

// revokedLocked drops a delivery that the leader revoked: it timed out, or the channel was
// emptied.
func (h *partitionSubscription) revokedLocked(seq ident.Sequence) {
	delete(h.held, seq)
	h.sub.freeWaitingLocked(h.remote.buffer.drop(seq))
	h.sub.wake()
}

// goneLocked notes that the leader has no such stream. A verb that the leader could not
// carry out comes back in the argument, and is sent again after the next opening.
func (h *partitionSubscription) goneLocked(v wire.Verb) {
	if kind := wire.VerbKind(v.Argument & 0xff); kind != 0 {
		back := v
		back.Kind, back.Argument = kind, v.Argument>>8
		h.addToBacklogLocked(back)
	}
	if h.remote != nil && h.remote.stream == v.Stream {
		h.missing = 0
		h.failedLocked(h.sub.g.now())
	}
}
