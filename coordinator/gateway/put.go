package gateway

import (
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// put is one put on its way. Fields below the line are guarded by the lane's
// lock; the others never change after Publish.
type put struct {
	gateway  *Gateway
	lane     *lane
	draft    queue.Draft
	answerer edge.Answerer
	born     time.Duration
	alone    bool // no other put was under way here when it came

	next, prev *put
	place      uint64 // counts the lane's puts
	history
	current Leadership    // whom the present attempt went to
	sent    time.Duration // when
	local   bool          // the present attempt is a Propose here
	parked  bool          // no attempt is under way
	sealed  bool          // the header room was given away
	done    bool
}

// Complete takes the outcome of a local attempt. There is at most one local
// attempt at a time and it is never given up before it completes, so the
// present attempt is the one meant.
func (p *put) Complete(c replica.Completion) {
	p.gateway.settle(p, 0, c.Outcome, c.First)
}

// history is what is known of a put's attempts: a value without clock or lock.
type history struct {
	attempt uint32   // number of the newest attempt; 0 = none yet
	doubts  []uint32 // earlier attempts that may have been written
	refused bool     // the newest definite answer was "not enough replicas"
}

// verdict is what an outcome means for the put.
type verdict uint8

const (
	ignore    verdict = iota // an old attempt's answer: nothing to do
	tryAgain                 // the present attempt is over without a final word
	committed                // stored
	notEnough                // definitely not stored
	takenBack                // definitely not stored any more
	topicFull                // definitely not stored
	diskFull                 // definitely not stored
)

// judge records the outcome of one attempt and says what to do. held: T_hold
// has passed since the put came.
func (h *history) judge(attempt uint32, parked bool, o replica.Outcome, held bool) verdict {
	if o == replica.Committed || o == replica.Duplicate {
		return committed // whichever attempt says so
	}
	if attempt != h.attempt || parked {
		if o != replica.InDoubt {
			h.resolve(attempt)
		}
		return ignore
	}
	h.refused = o == replica.NotEnoughReplicas
	sure := len(h.doubts) == 0
	switch {
	case o == replica.RolledBack && sure:
		return takenBack
	case o == replica.NotEnoughReplicas && sure && held:
		return notEnough
	case o == replica.TopicFull && sure:
		return topicFull
	case o == replica.DiskFull && sure:
		return diskFull
	case o == replica.InDoubt:
		h.doubt(attempt)
	}
	return tryAgain
}

// doubt notes that an attempt ended and may have been written.
func (h *history) doubt(attempt uint32) {
	if !slices.Contains(h.doubts, attempt) {
		h.doubts = append(h.doubts, attempt)
	}
}

// resolve notes that an attempt was certainly not written, or taken back.
func (h *history) resolve(attempt uint32) {
	if i := slices.Index(h.doubts, attempt); i >= 0 {
		h.doubts = slices.Delete(h.doubts, i, i+1)
	}
}

// final is the most honest answer for a put that is given up. sure: what to
// say when nothing can have been written.
func (h *history) final(parked bool, sure error) error {
	switch {
	case len(h.doubts) > 0 || !parked:
		return edge.ErrInDoubt
	case h.refused && sure == edge.ErrNoLeader:
		return edge.ErrNotEnough
	default:
		return sure
	}
}

// answer is a result on its way to an Answerer, to be given without a lock.
type answer struct {
	put    *put
	result edge.PutResult
}

// putList is an intrusive list, ordered by place; a put is in at most one.
type putList struct {
	head, tail *put
	n          int
}

// insertOld adds p by its place. The search begins at the head: p is given back
// and probably among the oldest.
func (l *putList) insertOld(p *put) {
	var after *put
	for q := l.head; q != nil && q.place < p.place; q = q.next {
		after = q
	}
	l.insertAfter(after, p)
}

// insertNew adds p by its place. The search begins at the tail: p is probably
// the newest.
func (l *putList) insertNew(p *put) {
	after := l.tail
	for after != nil && after.place > p.place {
		after = after.prev
	}
	l.insertAfter(after, p)
}

func (l *putList) insertAfter(after, p *put) {
	l.n++
	p.prev = after
	if after == nil {
		p.next, l.head = l.head, p
	} else {
		p.next, after.next = after.next, p
	}
	if p.next == nil {
		l.tail = p
	} else {
		p.next.prev = p
	}
}

// remove takes p out.
func (l *putList) remove(p *put) {
	l.n--
	if p.prev == nil {
		l.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.next, p.prev = nil, nil
}
