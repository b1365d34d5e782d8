package gateway

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
)

// Credit follows demand. RDY is the number of messages that a client may hold. It is
// divided over the streams of its subscription that lately had messages for it, half of it
// evenly and half in proportion to the finishes: otherwise a backlog in one partition of
// many would be drained with a fraction of RDY. A stream that had none may send one
// message, and has a part from the next weighing of demand on. While the client finishes
// nothing, a stream with room left has no more messages either: the other streams get its
// part, beyond the messages that the client holds of it.
//
// A finish travels to the leader, and the next message travels back. So that a fast client
// does not spend that time idle, the streams are granted as many messages more as it
// finishes in aheadOf. They wait here. A client that takes a second for a message is sent
// nothing ahead: another client may be free for it.
//
// An RDY below the number of partitions still brings one message of each, so that no
// partition starves. While the client works on as many as it may hold, these would
// wait for it, and other clients be idle. Such a client is busy, and they are returned.
const (
	aheadOf = 5 * time.Millisecond
	// weighEvery and weighAfter: demand is weighed at every weighAfter-th finish, if the
	// last weighing is weighEvery ago.
	weighEvery = 20 * time.Millisecond
	weighAfter = 64
	// waitingBytes bounds the bytes that wait here for a client that does not read, in all streams of its subscription: RDY
	// counts messages, however large. Beyond it no more credit is granted. At most twice as much is ever kept.
	waitingBytes = 4 << 20
)

// demand is the recent work of a subscription's client.
type demand struct {
	finished int           // since it was weighed
	weighed  time.Duration // when
	total    int           // finished in the period before that: the weights' sum
	ahead    int           // granted beyond RDY
	parts    int           // partitions that have a part of it
	kept     int           // in flight of the other partitions: no part of it
}

// creditLocked is one stream's credit: its part, or less of it while memory is short.
func (s *subscription) creditLocked(h *partitionSubscription) int {
	credit := s.partLocked(h)
	if r := h.remote; r != nil && r.narrow {
		credit = min(credit, r.most)
	}
	return credit
}

// partLocked is one stream's part. It is never 0 while RDY is not, or a partition
// would starve.
func (s *subscription) partLocked(h *partitionSubscription) int {
	d := &s.mu.demand
	if s.mu.ready <= 0 {
		return 0
	}
	if s.mu.busy {
		return min(len(h.held), maxCredit)
	}
	if !h.part {
		return min(h.kept+1, maxCredit)
	}
	whole := s.mu.ready - min(d.kept, s.mu.ready) + min(d.ahead, s.mu.ready)
	// The credit of the streams up to this one, less the credit of those before it: the
	// parts sum to the whole however the division rounds.
	from, to, of := h.place, h.place+1, d.parts
	if d.total > 0 {
		from, to, of = from*d.total+of*h.before, to*d.total+of*(h.before+h.weight), 2*of*d.total
	}
	credit := whole*to/of - whole*from/of
	if r := h.remote; r != nil && s.mu.waiting > waitingBytes {
		credit = min(credit, len(h.held)+r.buffer.len()) // as much as it has
	}
	return min(max(credit, 1), maxCredit)
}

// finishedLocked counts a message that the client finished or requeued.
func (s *subscription) finishedLocked(h *partitionSubscription) {
	if s.mu.busy {
		s.mu.busy = false
		s.grantLocked()
	}
	h.finished++
	s.mu.demand.finished++
	if s.mu.demand.finished%weighAfter == 0 {
		if now := s.g.now(); now-s.mu.demand.weighed >= weighEvery {
			s.weighLocked(now)
		}
	}
}

// weighLocked redistributes the credit.
func (s *subscription) weighLocked(now time.Duration) {
	d := &s.mu.demand
	period := max(now-d.weighed, 1)
	*d = demand{weighed: now, total: d.finished, ahead: int(time.Duration(d.finished) * aheadOf / period)}
	none := true
	for _, h := range s.mu.order {
		h.part = h.finished > 0 || h.hasLocked() && (d.total > 0 || !h.hasRoomLocked())
		none = none && !h.part
	}
	before := 0
	for _, h := range s.mu.order {
		h.kept = 0
		if h.part = h.part || none; h.part {
			h.place, h.before, h.weight = d.parts, before, h.finished
			d.parts++
			before += h.weight
		} else if h.hasLocked() && d.total == 0 {
			h.kept = h.underWayLocked()
			d.kept += h.kept
		}
		h.finished = 0
	}
	s.grantLocked()
}

// grantLocked brings the credits of all streams up to date.
func (s *subscription) grantLocked() {
	for _, h := range s.mu.order {
		h.setCreditLocked(s.creditLocked(h))
	}
}

// underWayLocked counts the messages of the partition that the client has or will get.
func (h *partitionSubscription) underWayLocked() int {
	n := h.inFlightLocked()
	if h.remote != nil {
		n += h.remote.buffer.len()
	}
	return n
}

// hasLocked reports whether there are any.
func (h *partitionSubscription) hasLocked() bool { return h.underWayLocked() > 0 }

// hasRoomLocked reports whether more could come: a partition that is led here needs no
// credit.
func (h *partitionSubscription) hasRoomLocked() bool {
	return h.local != nil || h.remote != nil && h.underWayLocked() < h.remote.credit
}

// refreshCredit weighs the demand again and sends every credit again, because the frame
// with the last one may have been lost. Messages that were sent ahead of a client that has
// stopped since are returned.
func (s *subscription) refreshCredit(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.mu.demand.weighed >= weighEvery {
		s.mu.busy = s.mu.demand.finished == 0 && s.inFlightLocked() >= s.mu.ready
		s.weighLocked(now)
	}
	for _, h := range s.mu.order {
		h.widenLocked()
		h.sendCreditLocked() // first, or the returned messages would come again
		h.giveBackLocked()
		h.touchWaitingLocked()
	}
}

// touchWaitingLocked starts the timeouts of the messages that wait here again: the time
// of a client begins when it gets the message.
func (h *partitionSubscription) touchWaitingLocked() {
	r := h.remote
	if r == nil {
		return
	}
	for _, d := range r.buffer.waiting() {
		v := wire.VerbOf(wire.VerbTouch, r.stream, &d)
		v.Argument = wire.Unseen
		h.sub.g.out.sendVerb(r.to.Node, v)
	}
}

// setCreditLocked changes the stream's credit. At 0 the messages that were sent ahead are
// returned at once.
func (h *partitionSubscription) setCreditLocked(n int) {
	r := h.remote
	if r == nil || r.credit == n {
		return
	}
	r.credit = n
	h.sendCreditLocked()
	if n == 0 {
		h.giveBackLocked()
	}
}

// giveBackLocked returns the messages beyond the credit that the client has not seen, the
// last ones first.
func (h *partitionSubscription) giveBackLocked() {
	r := h.remote
	if r == nil {
		return
	}
	beyond := min(len(h.held)+r.buffer.len()-r.credit, r.buffer.len())
	h.returnLocked(max(beyond, 0))
}

// returnLocked returns the last n messages that wait here to the leader.
func (h *partitionSubscription) returnLocked(n int) {
	last := h.remote.buffer.cut(n)
	h.sub.freeWaitingLocked(size(last))
	h.sendBackLocked(last)
}

// sendBackLocked gives messages that the client has not seen back to the leader.
func (h *partitionSubscription) sendBackLocked(list []api.Delivery) {
	r := h.remote
	for _, d := range list {
		v := wire.VerbOf(wire.VerbRequeue, r.stream, &d)
		v.Argument = wire.Unseen
		h.sub.g.out.sendVerb(r.to.Node, v)
	}
}

// narrowLocked stops the leader when there is no room: the stream gets no more messages than it has. It gets its whole
// credit again when the client reads. If memory is short, widenLocked tries twice as many each second.
func (h *partitionSubscription) narrowLocked(short bool) {
	r := h.remote
	r.short = short || r.narrow && r.short
	r.narrow, r.most = true, len(h.held)+r.buffer.len()
	h.sub.mu.crowded = h.sub.mu.crowded || !r.short
	h.setCreditLocked(h.sub.creditLocked(h))
}

// readsLocked widens the streams that are narrow because the client did not read, once less waits for it. It reports
// whether there may have been any.
func (s *subscription) readsLocked() bool {
	if !s.mu.crowded || s.mu.waiting > waitingBytes {
		return false
	}
	s.mu.crowded = false
	for _, h := range s.mu.order {
		if r := h.remote; r != nil && !r.short {
			r.narrow = false
		}
	}
	return true
}

func (h *partitionSubscription) widenLocked() {
	r := h.remote
	if r == nil || !r.narrow {
		return
	}
	r.most = max(2*r.most, r.most+1)
	r.narrow = r.most < h.sub.partLocked(h)
	h.setCreditLocked(h.sub.creditLocked(h))
}

func (h *partitionSubscription) sendCreditLocked() {
	if r := h.remote; r != nil {
		v := wire.Verb{Kind: wire.VerbCredit, Stream: r.stream, Argument: int64(r.credit)}
		h.sub.g.out.sendVerb(r.to.Node, v)
	}
}
