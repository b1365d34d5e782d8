package gateway

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/rpc"
)

// handleRelay takes a frame about streams: those that a peer has open here, and
// those that we have open there.
func (g *Gateway) handleRelay(from ident.Node, _ ident.Incarnation, f rpc.Received) error {
	var h relayHeader
	if err := h.decode(f.Header); err != nil {
		return fmt.Errorf("relay header: %w", err)
	}
	switch h.Kind {
	case frameDeliver:
		return g.subs.deliver(f.Payload, h.Count)
	case frameOpen:
		held, err := verbs(f.Payload, h.Count)
		if err != nil {
			return err
		}
		if h.Open == nil || len(h.Open.TopicName) > maxStreamName || len(h.Open.Channel) > maxStreamName {
			return fmt.Errorf("%w: opening", errFrame)
		}
		g.server.open(from, h.Open, held)
		return nil
	case frameVerbs:
		list, err := verbs(f.Payload, h.Count)
		if err != nil {
			return err
		}
		for _, v := range list {
			if v.Kind >= verbTaken {
				g.subs.hear(v)
			} else {
				g.server.hear(from, v)
			}
		}
		return nil
	}
	return fmt.Errorf("%w: relay kind %d", errFrame, h.Kind)
}

// deliver puts what arrived into the buffers of its streams.
func (s *subscriptions) deliver(payload []byte, count int) error {
	records, rest, err := table(payload, count, deliverSize)
	if err != nil {
		return err
	}
	run := make([]edge.Delivery, 0, count) // deliveries of one stream, one after the other
	var stream uint64
	for ; len(records) > 0; records = records[deliverSize:] {
		id, d, after, err := decodeDelivery(records, rest)
		if err != nil {
			return err
		}
		if id != stream {
			s.arrive(stream, run)
			stream, run = id, run[:0]
		}
		run, rest = append(run, d), after
	}
	s.arrive(stream, run)
	return nil
}

// arrive adds deliveries to a stream's buffer. A stream that was given up is
// unknown; its leader hears that it is closed.
func (s *subscriptions) arrive(stream uint64, run []edge.Delivery) {
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
	bytes := 0
	for i := range run {
		bytes += run[i].Message.Size()
		run[i].Partition = h.id
		run[i].ID = nsqd.ID(h.id, run[i].Message.Seq)
	}
	r.buffer.push(run, bytes)
	if r.buffer.bytes > waitingBytes {
		h.setCreditLocked(h.sub.creditLocked(h))
	}
	h.pause, h.missing = 0, 0
	h.sub.nudge()
}

// hear takes a leader's words about one of our streams.
func (s *subscriptions) hear(v verb) {
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
	if v.Kind == verbGone {
		h.goneLocked(v)
		return
	}
	if h.remote == nil || h.remote.stream != v.Stream {
		return
	}
	switch {
	case v.Kind&verbRefused != 0:
		v.Kind &^= verbRefused
		if v.Kind == verbTouch && v.Argument != unseen { // a finish or requeue was forgotten when it was said: what is held now came later
			delete(h.held, v.Sequence)
		}
		if v.Argument != unseen { // else the client does not know of it
			h.refuse(v, edge.ErrNotInFlight)
		}
		sub.nudge()
	case v.Kind == verbTaken:
		h.takenLocked(v.Sequence)
	case v.Kind == verbDeleted:
		sub.endLocked()
	case v.Kind == verbMissing:
		now := h.sub.g.now()
		h.failedLocked(now)
		h.missingLocked(now)
	}
}

// takenLocked: the leader took a delivery back (timed out, emptied).
func (h *share) takenLocked(seq ident.Sequence) {
	delete(h.held, seq)
	h.remote.buffer.drop(seq)
	h.sub.nudge()
}

// goneLocked: the stream is not there any more. What the leader could not carry
// out comes back in the argument and is said again after the next opening.
func (h *share) goneLocked(v verb) {
	if kind := verbKind(v.Argument & 0xff); kind != 0 {
		h.keepLocked(verb{Kind: kind, Sequence: v.Sequence, Epoch: v.Epoch, Argument: v.Argument >> 8})
	}
	if h.remote != nil && h.remote.stream == v.Stream {
		h.missing = 0
		h.failedLocked(h.sub.g.now())
	}
}
