package gateway

import "time"

// Credit follows demand. RDY is what a client may hold; it is divided over the
// streams of its subscription that lately had something for it, half of it evenly
// and half by what the client finished of each: a backlog in one partition of
// many is not drained with a fraction of RDY. One that had nothing may send one
// message, and has a part from the next time on that demand is weighed. While the
// client finishes nothing, one that has room left has no more for it either: beyond
// what the client holds of it, the others have its part.
//
// A finish travels to the leader and its successor back. Lest a fast client
// spend that time idle, the streams are granted what it finishes in aheadOf more,
// which waits here. A client that takes a second for a message is sent nothing
// ahead: another one may be free for it.
//
// RDY below the number of partitions still brings one message of each, so that no
// partition starves. While the client works on as many as it may hold, those would
// wait for it, however long, and others be idle: it is busy, and they go back.
const (
	aheadOf = 5 * time.Millisecond
	// weighEvery and weighAfter say when demand is weighed: at the first of so many
	// finishes that comes so long after the last time.
	weighEvery = 20 * time.Millisecond
	weighAfter = 64
	// waitingBytes is what may wait here for a client that does not read. RDY counts
	// messages, however large; beyond it nothing more is granted.
	waitingBytes = 4 << 20
)

// demand is what a subscription's client did lately.
type demand struct {
	finished int           // since it was weighed
	weighed  time.Duration // when
	total    int           // finished in the period before that: the weights' sum
	ahead    int           // granted beyond RDY
	parts    int           // shares that have a part of it
	kept     int           // what the others have in flight: no part of it
}

// creditLocked is one stream's part: never 0 while RDY is not, or a partition
// would starve.
func (s *subscription) creditLocked(h *share) int {
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
	// What the streams up to this one get, less what those before it get: in all it
	// is the whole, wherever it is cut.
	from, to, of := h.place, h.place+1, d.parts
	if d.total > 0 {
		from, to, of = from*d.total+of*h.before, to*d.total+of*(h.before+h.weight), 2*of*d.total
	}
	credit := whole*to/of - whole*from/of
	if r := h.remote; r != nil && r.buffer.bytes > waitingBytes {
		credit = min(credit, len(h.held)+r.buffer.len()) // what it has
	}
	return min(max(credit, 1), maxCredit)
}

// finishedLocked counts a message that the client is done with.
func (s *subscription) finishedLocked(h *share) {
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

// weighLocked divides the credit anew.
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

// underWayLocked is what the client has of the partition, or will.
func (h *share) underWayLocked() int {
	n := h.inFlightLocked()
	if h.remote != nil {
		n += h.remote.buffer.len()
	}
	return n
}

// hasLocked reports whether there is any.
func (h *share) hasLocked() bool { return h.underWayLocked() > 0 }

// hasRoomLocked reports whether more could come: what this broker leads needs no
// credit.
func (h *share) hasRoomLocked() bool {
	return h.local != nil || h.remote != nil && h.underWayLocked() < h.remote.credit
}

// refreshCredit weighs again what the client of a second ago deserves, and says
// every credit again: the message that says it may have been lost. What was sent
// ahead of a client that has stopped since goes back.
func (s *subscription) refreshCredit(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.mu.demand.weighed >= weighEvery {
		s.mu.busy = s.mu.demand.finished == 0 && s.inFlightLocked() >= s.mu.ready
		s.weighLocked(now)
	}
	for _, h := range s.mu.order {
		h.sayCreditLocked() // first, or it would come again
		h.giveBackLocked()
		h.touchWaitingLocked()
	}
}

// touchWaitingLocked starts the timeouts again of what the client has not been sent
// yet: its time begins when it gets the message.
func (h *share) touchWaitingLocked() {
	r := h.remote
	if r == nil {
		return
	}
	for _, d := range r.buffer.waiting() {
		h.sub.g.out.say(r.to.Node, verb{
			Kind: verbTouch, Stream: r.stream, Sequence: d.Message.Seq, Epoch: d.Epoch, Argument: unseen,
		})
	}
}

// setCreditLocked changes the stream's credit. Without any, what was sent ahead
// goes back at once.
func (h *share) setCreditLocked(n int) {
	r := h.remote
	if r == nil || r.credit == n {
		return
	}
	r.credit = n
	h.sayCreditLocked()
	if n == 0 {
		h.giveBackLocked()
	}
}

// giveBackLocked returns what was sent beyond the credit and the client has not
// seen, from the end.
func (h *share) giveBackLocked() {
	r := h.remote
	if r == nil {
		return
	}
	beyond := min(len(h.held)+r.buffer.len()-r.credit, r.buffer.len())
	h.returnLocked(max(beyond, 0))
}

// returnLocked gives back the last n messages that wait here.
func (h *share) returnLocked(n int) {
	r := h.remote
	for _, d := range r.buffer.cut(n) {
		h.sub.g.out.say(r.to.Node, verb{
			Kind: verbRequeue, Stream: r.stream, Sequence: d.Message.Seq, Epoch: d.Epoch, Argument: unseen,
		})
	}
}

func (h *share) sayCreditLocked() {
	if r := h.remote; r != nil {
		v := verb{Kind: verbCredit, Stream: r.stream, Argument: int64(r.credit)}
		h.sub.g.out.say(r.to.Node, v)
	}
}
