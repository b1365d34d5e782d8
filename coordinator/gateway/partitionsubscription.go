package gateway

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// partitionSubscription is a subscription's share in one partition. At most one of local and remote is set. If neither
// is, no leader is known here. All fields are guarded by the subscription's lock.
type partitionSubscription struct {
	sub  *subscription
	id   ident.Partition
	held map[ident.Sequence]holding // deliveries that the client has
	// backlog holds the client's finishes and requeues that no leader has received. Each was in held, which bounds the
	// backlog.
	backlog []clientVerb
	// requeued holds the latest requeues with a delay that a leader has received.
	requeued         map[ident.Sequence]clientVerb
	local            *local
	remote           *remote
	last             uint64        // the stream opened last: the next one replaces it
	pause            time.Duration // between attachments that fail; doubles
	nextTry          time.Duration // no attachment before
	missing          time.Duration // since when the leader has lacked the channel; 0: it has the channel
	finished         int           // by the client, since its demand was measured
	weight           int           // the value of finished in the previous period
	active           bool          // it had messages for the client when demand was last measured, so it has a share of the credit
	index            int           // among the active partitions
	weightBefore     int           // sum of the weights of the active partitions before it
	inFlightInactive int           // messages in flight when demand was last measured, if the partition was not active
}

// holding is one delivery that the client holds.
type holding struct {
	epoch    ident.Epoch
	number   uint64 // together with the epoch it identifies the delivery
	attempts uint16
	since    time.Duration // when the client received it
	deadline time.Duration // forgotten then; 0: never
}

func (h holding) is(epoch ident.Epoch, number uint64) bool {
	return h.number != 0 && h.epoch == epoch && h.number == number
}

func (h holding) verb(kind wire.VerbKind, seq ident.Sequence) wire.Verb {
	return wire.Verb{Kind: kind, Sequence: seq, Epoch: h.epoch, Number: h.number, Attempts: h.attempts}
}

func receiptOf(v wire.Verb) nsqd.Receipt {
	return nsqd.Receipt{Sequence: v.Sequence, Epoch: v.Epoch, Number: v.Number, Attempts: v.Attempts}
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
	// buffer holds the deliveries that have not been pulled: in flight at the leader, not seen by the client.
	buffer arrivals
	// narrow: the last messages did not fit, so the credit is limited to `most`. short: they did not fit because memory
	// is short, and not because the client does not read.
	narrow, short bool
	most          int
}

// pull appends deliveries for the client. The caller does not have the lock.
func (h *partitionSubscription) pull(credit int, dst []api.Delivery) []api.Delivery {
	s := h.sub
	s.mu.Lock()
	if r := h.remote; r != nil {
		from := len(dst)
		full := s.mu.waiting > waitingBytes
		dst = r.buffer.take(min(credit, r.buffer.len()), dst)
		s.mu.waiting -= size(dst[from:])
		h.holdLocked(dst[from:])
		if s.readsLocked() || full {
			s.grantLocked()
		}
		s.mu.Unlock()
		return dst
	}
	l := h.local
	dry := s.mu.dry != 0
	s.mu.Unlock()
	if l == nil || dry {
		return dst
	}
	from := len(dst)
	dst = l.channel.Pull(l.subscriber, credit, dst)
	if len(dst) == from {
		return dst
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.local != l { // detached: the current leader delivers them
		return dst[:from]
	}
	fit, _ := s.takeLocked(dst[from:], math.MaxInt)
	fit += from
	h.holdLocked(dst[from:fit])
	if fit < len(dst) {
		h.undoLocked(dst[fit:])
	}
	return dst[:fit]
}

// undoLocked returns messages of partitions led here when memory is short for them. They are pulled again after a
// pause.
func (h *partitionSubscription) undoLocked(list []api.Delivery) {
	s, l := h.sub, h.local
	s.mu.dry = s.g.now() + dryPause
	l.channel.Pull(l.subscriber, 0, nil) // no demand until then
	for i := range list {
		_ = l.channel.Undo(l.subscriber, nsqd.ReceiptOf(&list[i])) // an error means that it is no longer this client's
	}
	s.g.subs.scheduleAt(s.mu.dry)
	s.g.wake()
}

func (h *partitionSubscription) holdLocked(d []api.Delivery) {
	deadline, now := h.deadline(), h.sub.g.now()
	for i := range d {
		delete(h.requeued, d[i].Message.Seq)
		h.held[d[i].Message.Seq] = holding{epoch: d[i].Epoch, number: d[i].Number, attempts: d[i].Message.Attempts, since: now, deadline: deadline}
	}
}

// deadline is when a delivery made now is forgotten.
func (h *partitionSubscription) deadline() time.Duration {
	if h.sub.request.MsgTimeoutMS <= 0 {
		return 0
	}
	return h.sub.g.now() + time.Duration(h.sub.request.MsgTimeoutMS)*time.Millisecond + sweepGrace
}

// handleLocked passes on the client's verb about a delivery that it holds.
func (h *partitionSubscription) handleLocked(v wire.Verb) error {
	held, ok := h.held[v.Sequence]
	switch {
	case ok:
	case h.local != nil:
		return h.local.channel.Refusal(h.local.subscriber, v.Sequence)
	default:
		return outcome.ErrNotInFlight // only the leader knows the current owner
	}
	v.Epoch, v.Number, v.Attempts = held.epoch, held.number, held.attempts
	if v.Kind == wire.VerbTouch {
		before := held.deadline
		held.deadline = h.deadline()
		if before > 0 && held.deadline-before < touchPause && h.remote != nil {
			return nil // the leader has just received a touch: many touches must not become as many verbs
		}
		h.held[v.Sequence] = held
	} else {
		delete(h.held, v.Sequence)
		h.sub.finishedLocked(h)
	}
	switch {
	case h.local != nil:
		err := apply(h.local.channel, h.local.subscriber, v)
		if err == nil {
			h.passedLocked(clientVerb{Verb: v, at: h.sub.g.now()})
		}
		if !errors.Is(err, nsqd.ErrNotLeader) {
			return err
		}
		h.addToBacklogLocked(v)
	case h.remote != nil:
		v.Stream = h.remote.stream
		h.sub.g.out.sendVerb(h.remote.to.Node, v)
		h.passedLocked(clientVerb{Verb: v, at: h.sub.g.now()})
	default:
		h.addToBacklogLocked(v)
	}
	return nil
}

// settleLocked carries out a verb on the delivery that a receipt names, if the channel is served here. Otherwise the
// caller asks the leader.
func (h *partitionSubscription) settleLocked(r nsqd.Receipt, do api.Settlement) error {
	held, ok := h.held[r.Sequence]
	switch {
	case !ok:
		return outcome.ErrNotInFlight
	case !held.is(r.Epoch, r.Number):
		return outcome.ErrNotOwner
	}
	if do.Verb == api.VerbTouch {
		held.deadline = h.deadline()
		h.held[r.Sequence] = held
	}
	if h.local == nil {
		return outcome.ErrNotInFlight
	}
	err := settle(h.local.channel, h.local.subscriber, r, do)
	switch {
	case errors.Is(err, nsqd.ErrNotLeader):
		return outcome.ErrNotInFlight
	case do.Verb != api.VerbTouch:
		delete(h.held, r.Sequence)
		h.sub.finishedLocked(h)
	}
	return err
}

// addToBacklogLocked stores a verb for the next leader. A touch is dropped: the next opening reports the remaining
// timeouts.
func (h *partitionSubscription) addToBacklogLocked(v wire.Verb) {
	if v.Kind == wire.VerbFinish || v.Kind == wire.VerbRequeue {
		h.backlog = append(h.backlog, clientVerb{Verb: v, at: h.sub.g.now()})
	}
}

func apply(c *nsqd.Channel, s *nsqd.Subscriber, v wire.Verb) error {
	r := receiptOf(v)
	switch v.Kind {
	case wire.VerbFinish:
		return c.FinishLate(s, r)
	case wire.VerbRequeue:
		switch v.Argument {
		case wire.Unseen:
			return c.Undo(s, r)
		case wire.Left:
			return c.Return(s, r)
		case wire.Kept:
			return c.AwaitTimeout(s, r)
		}
		return c.Requeue(s, r, v.Argument)
	default:
		return c.Touch(s, r)
	}
}

func (h *partitionSubscription) inFlightLocked() int {
	if h.local != nil {
		return h.local.channel.InFlight(h.local.subscriber)
	}
	return len(h.held)
}

// oldestLocked is the delivery that the client has held longest; nil if it holds none.
func (h *partitionSubscription) oldestLocked(now time.Duration) (m *api.HeldMessage) {
	if h.local != nil {
		return h.local.channel.Oldest(h.local.subscriber)
	}
	for seq, v := range h.held {
		if age := now - v.since; m == nil || age > m.For {
			m = &api.HeldMessage{ID: api.MessageIDOf(h.id, seq), Partition: h.id.Number, Attempts: v.attempts, For: age}
		}
	}
	return m
}

// heldLocked lists the messages that the leader must have in flight to this subscription: the client holds them and
// their timeouts are not over, or the backlog names them.
func (h *partitionSubscription) heldLocked() []wire.Verb {
	now := h.sub.g.now()
	out := make([]wire.Verb, 0, len(h.held)+len(h.backlog))
	for seq, held := range h.held {
		v := held.verb(wire.VerbHeld, seq)
		if held.deadline > 0 {
			if v.Argument = (held.deadline - sweepGrace - now).Milliseconds(); v.Argument <= 0 {
				continue // as at the leader
			}
		}
		out = append(out, v)
	}
	for _, x := range h.backlog {
		v := x.Verb
		v.Kind, v.Stream, v.Argument = wire.VerbHeld, 0, 0
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b wire.Verb) int { return int(a.Sequence) - int(b.Sequence) })
	return out
}

// sweepLocked forgets the deliveries whose timeout ended long ago. It reports whether there were any.
func (h *partitionSubscription) sweepLocked(now time.Duration) (freed bool) {
	for seq, v := range h.held {
		if v.deadline > 0 && now >= v.deadline {
			delete(h.held, seq)
			freed = true
		}
	}
	return freed
}

// refuse sends a late refusal to the client, unless too many wait already.
func (h *partitionSubscription) refuse(v wire.Verb, err error) {
	r := api.Refusal{ID: api.MessageIDOf(h.id, v.Sequence), Verb: v.Kind.String(), Err: err}
	select {
	case h.sub.refused <- r:
	default:
	}
}
