package gateway

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// share is a subscription's part in one partition. At most one of local and
// remote is set; with neither, the partition is not served anywhere we know.
// All fields are guarded by the subscription's lock.
type share struct {
	sub  *subscription
	id   ident.Partition
	held map[ident.Sequence]holding // what the client was given
	// backlog is what the client said and no leader has heard: finishes and
	// requeues. Each was in held, which bounds it.
	backlog []verb
	local   *local
	remote  *remote
	last    uint64 // the stream opened last: the next one takes its place
	// spare is the buffer of a stream whose link broke. If the same leader takes
	// the next stream, the deliveries go on with their attempts as they are.
	spare     arrivals
	spareFrom Leadership
	pause     time.Duration // between attachments that fail; doubles
	nextTry   time.Duration // no new attachment before
	missing   time.Duration // since when a serving leader does not know the channel; 0 = no
	finished  int           // by the client, since its demand was weighed
	weight    int           // the same, of the period before
	part      bool          // it had something for the client then
	place     int           // among those that had
	before    int           // the weights of those before it
	kept      int           // in flight then, if it had no part although the client has something of it
}

// holding is one delivery in the client's hands.
type holding struct {
	epoch    ident.Epoch
	attempts uint16
	deadline time.Duration // forgotten then; 0 = never
}

// local is an attachment to a channel served by this broker.
type local struct {
	channel    *nsqd.Channel
	subscriber *nsqd.Subscriber
}

// remote is a stream open at another broker.
type remote struct {
	stream uint64
	to     Leadership
	credit int
	// buffer is what arrived and was not pulled: in flight for the leader, not
	// in the client's hands.
	buffer arrivals
}

// pull takes deliveries for the client. It is called without the lock.
func (h *share) pull(credit int, dst []edge.Delivery) []edge.Delivery {
	s := h.sub
	s.mu.Lock()
	if r := h.remote; r != nil {
		from := len(dst)
		full := r.buffer.bytes > waitingBytes
		dst = r.buffer.take(min(credit, r.buffer.len()), dst)
		h.holdLocked(dst[from:])
		if full {
			h.setCreditLocked(s.creditLocked(h))
		}
		s.mu.Unlock()
		return dst
	}
	l := h.local
	s.mu.Unlock()
	if l == nil {
		return dst
	}
	from := len(dst)
	dst = l.channel.Pull(l.subscriber, credit, dst)
	if len(dst) == from {
		return dst
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.local != l { // lost meanwhile: whoever serves now delivers them
		return dst[:from]
	}
	h.holdLocked(dst[from:])
	return dst
}

func (h *share) holdLocked(d []edge.Delivery) {
	deadline := h.deadline()
	for i := range d {
		h.held[d[i].Message.Seq] = holding{epoch: d[i].Epoch, attempts: d[i].Message.Attempts, deadline: deadline}
	}
}

// deadline is when a delivery of now is forgotten.
func (h *share) deadline() time.Duration {
	if h.sub.request.MsgTimeoutMS <= 0 {
		return 0
	}
	return h.sub.g.now() + time.Duration(h.sub.request.MsgTimeoutMS)*time.Millisecond + sweepGrace
}

// sayLocked passes on what the client says about a delivery it holds.
func (h *share) sayLocked(v verb) error {
	held, ok := h.held[v.Sequence]
	switch {
	case ok:
	case h.local != nil:
		return h.local.channel.Refusal(h.local.subscriber, v.Sequence)
	default:
		return edge.ErrNotInFlight // who else holds it, the leader knows
	}
	v.Epoch = held.epoch
	if v.Kind == verbTouch {
		held.deadline = h.deadline()
		h.held[v.Sequence] = held
	} else {
		delete(h.held, v.Sequence)
		h.sub.finishedLocked(h)
	}
	switch {
	case h.local != nil:
		if err := apply(h.local.channel, h.local.subscriber, v); !errors.Is(err, nsqd.ErrNotLeader) {
			return err
		}
		h.keepLocked(v)
	case h.remote != nil:
		v.Stream = h.remote.stream
		h.sub.g.out.say(h.remote.to.Node, v)
	default:
		h.keepLocked(v)
	}
	return nil
}

// keepLocked keeps a verb for the next leader. A touch needs no keeping: the
// next opening starts the timeouts again.
func (h *share) keepLocked(v verb) {
	if v.Kind == verbFinish || v.Kind == verbRequeue {
		h.backlog = append(h.backlog, v)
	}
}

// apply carries a verb out at a channel.
func apply(c *nsqd.Channel, s *nsqd.Subscriber, v verb) error {
	switch v.Kind {
	case verbFinish:
		return c.Finish(s, v.Sequence, v.Epoch)
	case verbRequeue:
		switch v.Argument {
		case unseen:
			return c.Undo(s, v.Sequence)
		case left:
			return c.Return(s, v.Sequence)
		case kept:
			return c.Disown(s, v.Sequence)
		}
		return c.Requeue(s, v.Sequence, v.Argument)
	default:
		return c.Touch(s, v.Sequence)
	}
}

func (h *share) inFlightLocked() int {
	if h.local != nil {
		return h.local.channel.InFlight(h.local.subscriber)
	}
	return len(h.held)
}

// heldLocked lists what must be in flight to us: what the client holds and what
// it has spoken of without being heard.
func (h *share) heldLocked() []verb {
	spare := h.spare.waiting()
	out := make([]verb, 0, len(h.held)+len(h.backlog)+len(spare))
	for i := range spare {
		m := &spare[i].Message
		out = append(out, verb{Kind: verbHeld, Sequence: m.Seq, Epoch: spare[i].Epoch, Argument: int64(m.Attempts)})
	}
	for seq, v := range h.held {
		out = append(out, verb{Kind: verbHeld, Sequence: seq, Epoch: v.epoch, Argument: int64(v.attempts)})
	}
	for _, v := range h.backlog { // attempts 0: the leader knows them
		out = append(out, verb{Kind: verbHeld, Sequence: v.Sequence, Epoch: v.Epoch})
	}
	slices.SortFunc(out, func(a, b verb) int { return int(a.Sequence) - int(b.Sequence) })
	return out
}

// sweepLocked forgets what is long past its timeout. It reports whether
// anything was.
func (h *share) sweepLocked(now time.Duration) (freed bool) {
	for seq, v := range h.held {
		if v.deadline > 0 && now >= v.deadline {
			delete(h.held, seq)
			freed = true
		}
	}
	return freed
}

// refuse tells the client of a late "no", unless too many wait already.
func (h *share) refuse(v verb, err error) {
	r := edge.Refusal{ID: nsqd.ID(h.id, v.Sequence), Verb: v.Kind.String(), Err: err}
	select {
	case h.sub.refused <- r:
	default:
	}
}
