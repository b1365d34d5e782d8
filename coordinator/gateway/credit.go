package gateway

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd"
)

// Credit follows demand. RDY is the number of messages that a client may have in flight. It is divided over the streams
// of its subscription that recently had messages for it, half of it evenly and half in proportion to the finishes:
// otherwise a backlog in one partition of many would be drained with a fraction of RDY. A stream that had none may send
// one message, and gets a share when demand is next measured. If a stream has credit left while the client finishes
// nothing, it has no messages: the other streams get its share, less the messages that it has in flight.
//
// A finish travels to the leader, and the next message travels back. To keep a fast client busy during that time, the
// streams are granted as many additional messages as it finishes in aheadOf. These wait here. A client that takes a
// second for a message is sent nothing ahead, because another client may be free.
//
// If RDY is below the number of partitions, each partition may still send one message, so that none starves. But while
// the client works on as many messages as RDY allows, the others would wait here although other clients are idle. Such
// a client counts as busy, and the waiting messages are returned.
const (
	aheadOf = 5 * time.Millisecond
	// Demand is measured at every weighAfter-th finish, at most once per weighEvery.
	weighEvery = 20 * time.Millisecond
	weighAfter = 64
	// waitingBytes bounds the bytes that wait here for a client that does not read, in all streams of its subscription:
	// RDY counts messages, however large. Beyond it no credit is granted. At most twice as much is stored.
	waitingBytes = 4 << 20
)

// demand is the recent work of a subscription's client.
type demand struct {
	finished         int           // since demand was measured
	weighed          time.Duration // when
	total            int           // finished in the previous period: sum of the weights
	ahead            int           // granted beyond RDY
	parts            int           // active partitions
	inFlightInactive int           // in flight from inactive partitions: this part of RDY is not divided
}

// creditLocked is one stream's credit: its share, or less while memory is short.
func (s *subscription) creditLocked(h *partitionSubscription) int {
	credit := s.shareLocked(h)
	if r := h.remote; r != nil && r.narrow {
		credit = min(credit, r.most)
	}
	return credit
}

// shareLocked is one stream's share. It is never 0 while RDY is not, or a partition would starve.
func (s *subscription) shareLocked(h *partitionSubscription) int {
	d := &s.mu.demand
	if s.mu.ready <= 0 {
		return 0
	}
	if s.mu.busy {
		return min(len(h.held), maxCredit)
	}
	if !h.active {
		return min(h.inFlightInactive+1, maxCredit)
	}
	whole := s.mu.ready - min(d.inFlightInactive, s.mu.ready) + min(d.ahead, s.mu.ready)
	// The credit of all streams up to this one, less the credit of the streams before it. So the shares sum to the
	// total despite rounding.
	from, to, of := h.index, h.index+1, d.parts
	if d.total > 0 {
		from, to, of = from*d.total+of*h.weightBefore, to*d.total+of*(h.weightBefore+h.weight), 2*of*d.total
	}
	credit := whole*to/of - whole*from/of
	if r := h.remote; r != nil && s.mu.waiting > waitingBytes {
		credit = min(credit, len(h.held)+r.buffer.len()) // no more than it has
	}
	return min(max(credit, 1), maxCredit)
}

// finishedLocked counts a message that the client finished or requeued.
func (s *subscription) finishedLocked(h *partitionSubscription) {
	s.idleLocked()
	h.finished++
	s.mu.demand.finished++
	if s.mu.demand.finished%weighAfter == 0 {
		if now := s.g.now(); now-s.mu.demand.weighed >= weighEvery {
			s.weighLocked(now)
		}
	}
}

// idleLocked ends the pause of a busy client, because it holds one message less.
func (s *subscription) idleLocked() {
	if s.mu.busy {
		s.mu.busy = false
		s.grantLocked()
	}
}

// weighLocked measures demand and redistributes the credit.
func (s *subscription) weighLocked(now time.Duration) {
	d := &s.mu.demand
	period := max(now-d.weighed, 1)
	*d = demand{weighed: now, total: d.finished, ahead: int(time.Duration(d.finished) * aheadOf / period)}
	none := true
	for _, h := range s.mu.order {
		h.active = h.finished > 0 || h.sentLocked() > 0 && (d.total > 0 || !h.hasRoomLocked())
		none = none && !h.active
	}
	before := 0
	for _, h := range s.mu.order {
		h.inFlightInactive = 0
		if h.active = h.active || none; h.active {
			h.index, h.weightBefore, h.weight = d.parts, before, h.finished
			d.parts++
			before += h.weight
		} else if h.sentLocked() > 0 && d.total == 0 {
			h.inFlightInactive = h.sentLocked()
			d.inFlightInactive += h.inFlightInactive
		}
		h.finished = 0
	}
	s.grantLocked()
}

func (s *subscription) grantLocked() {
	for _, h := range s.mu.order {
		h.setCreditLocked(s.creditLocked(h))
	}
}

// sentLocked counts the partition's messages that are in flight to the client or wait here.
func (h *partitionSubscription) sentLocked() int {
	n := h.inFlightLocked()
	if h.remote != nil {
		n += h.remote.buffer.len()
	}
	return n
}

// hasRoomLocked reports whether the partition could deliver more messages. A partition that is led here needs no
// credit.
func (h *partitionSubscription) hasRoomLocked() bool {
	return h.local != nil || h.remote != nil && h.sentLocked() < h.remote.credit
}

// refreshCredit measures demand and sends every credit again, because the last frame may have been lost. Messages that
// were sent ahead of a client that has stopped are returned.
func (s *subscription) refreshCredit(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.mu.demand.weighed >= weighEvery {
		s.mu.busy = s.mu.demand.finished == 0 && s.inFlightLocked() >= s.mu.ready
		s.weighLocked(now)
	}
	for _, h := range s.mu.order {
		h.widenLocked()
		h.sendCreditLocked() // first, otherwise the returned messages would be sent again
		h.giveBackLocked()
		h.giveBackExpiredLocked()
	}
}

// touchWaiting touches the messages that wait here three times in their timeout, or as often as the credit is sent: the
// client's time begins when it gets the message, and a message that the client has not seen must not lose an attempt.
func (s *subscription) touchWaiting(now time.Duration) {
	every := keepAlive
	if timeout := time.Duration(s.request.MsgTimeoutMS) * time.Millisecond; timeout > 0 {
		every = min(every, timeout/3)
	}
	if now-s.touched < every {
		return
	}
	s.touched = now
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.mu.order {
		if h.remote != nil {
			h.sendUnseenLocked(wire.VerbTouch, h.remote.buffer.waiting())
		}
	}
}

// setCreditLocked changes the stream's credit. At 0 the messages that were sent ahead are returned at once.
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

// giveBackLocked returns the messages beyond the credit that the client has not seen, the last ones first.
func (h *partitionSubscription) giveBackLocked() {
	r := h.remote
	if r == nil {
		return
	}
	beyond := min(len(h.held)+r.buffer.len()-r.credit, r.buffer.len())
	h.returnLocked(max(beyond, 0))
}

// giveBackExpiredLocked returns messages that have expired while they waited here. The leader, by its own clock, finishes
// them or sends them again. So a message is delivered at most as long after its time to live as two calls of
// refreshCredit are apart.
func (h *partitionSubscription) giveBackExpiredLocked() {
	r := h.remote
	if r == nil || r.buffer.len() == 0 {
		return
	}
	now := time.Now().UnixNano()
	expired := r.buffer.remove(func(d *api.Delivery) bool { return nsqd.Outlived(&d.Message, h.sub.mu.ttl, now) })
	if len(expired) == 0 {
		return
	}
	h.sub.freeWaitingLocked(size(expired))
	h.sendUnseenLocked(wire.VerbRequeue, expired)
}

func (h *partitionSubscription) returnLocked(n int) {
	last := h.remote.buffer.cut(n)
	h.sub.freeWaitingLocked(size(last))
	h.sendUnseenLocked(wire.VerbRequeue, last)
}

// sendUnseenLocked sends a verb about messages that the client has not seen to the leader.
func (h *partitionSubscription) sendUnseenLocked(kind wire.VerbKind, list []api.Delivery) {
	r := h.remote
	for _, d := range list {
		v := wire.VerbOf(kind, r.stream, &d)
		v.Argument = wire.Unseen
		h.sub.g.out.sendVerb(r.to.Node, v)
	}
}

// narrowLocked stops the leader when there is no room: the credit shrinks to the messages that the stream has. It is
// restored when the client reads. If memory is short, widenLocked doubles it each second.
func (h *partitionSubscription) narrowLocked(short bool) {
	r := h.remote
	r.short = short || r.narrow && r.short
	r.narrow, r.most = true, len(h.held)+r.buffer.len()
	h.sub.mu.crowded = h.sub.mu.crowded || !r.short
	h.setCreditLocked(h.sub.creditLocked(h))
}

// readsLocked widens the streams that are narrow because the client did not read, once few bytes wait. It reports
// whether any stream may have been narrow.
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
	r.narrow = r.most < h.sub.shareLocked(h)
	h.setCreditLocked(h.sub.creditLocked(h))
}

func (h *partitionSubscription) sendCreditLocked() {
	if r := h.remote; r != nil {
		v := wire.Verb{Kind: wire.VerbCredit, Stream: r.stream, Argument: int64(r.credit)}
		h.sub.g.out.sendVerb(r.to.Node, v)
	}
}
