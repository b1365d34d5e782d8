package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// put is one unanswered put. The fields below the empty line are guarded by the put queue's lock. The others never
// change after Publish.
type put struct {
	queue       *putQueue
	draft       queue.Draft
	answerer    api.Answerer
	born        time.Duration
	uncontended bool // no other put was without an answer here when it came

	next, prev *put
	position   uint64 // in the queue, over all puts that it has had
	history
	current Leadership    // the target of the current attempt
	sent    time.Duration // when
	local   bool          // the current attempt is a Propose here
	parked  bool          // no attempt is in progress
	sealed  bool          // the header room was given to a Propose
	done    bool
}

// Complete takes the outcome of a local attempt. There is at most one at a time, and it is never given up before it
// completes: the outcome belongs to the current attempt.
func (p *put) Complete(c replica.Completion) { p.queue.complete(p, 0, c) }

// history is the record of a put's attempts: a value without clock or lock.
type history struct {
	attempt uint32   // number of the newest attempt; 0 = none yet
	doubts  []uint32 // earlier attempts that may have been written
	refused error    // outcome.ErrNotEnough, if that was the newest definite answer, else nil
}

// verdict is the consequence of an outcome for the put.
type verdict uint8

const (
	ignore    verdict = iota // an old attempt's answer: nothing to do
	tryAgain                 // the current attempt ended without a final answer
	committed                // stored
	refuse                   // definitely not stored, with the outcome's error
)

// judge records the outcome of one attempt and returns its consequence. held: the put is older than T_hold.
func (h *history) judge(attempt uint32, parked bool, c replica.Completion, held bool) verdict {
	effect := c.Outcome.Row().Effect
	if effect == outcome.Commits {
		return committed // of any attempt
	}
	if attempt != h.attempt || parked {
		if effect != outcome.Doubts {
			h.resolve(attempt)
		}
		return ignore
	}
	h.refused = shortage(c)
	sure := len(h.doubts) == 0
	switch {
	case effect == outcome.Refuses && sure, effect == outcome.AgainWhileHeld && sure && held:
		return refuse
	case effect == outcome.Doubts:
		h.doubt(attempt)
	}
	return tryAgain
}

// shortage is the error of an outcome "not enough replicas", with its numbers; nil for any other outcome.
func shortage(c replica.Completion) error {
	if c.Outcome != outcome.NotEnoughReplicas {
		return nil
	}
	return outcome.NotEnough{InSync: c.InSync, Minimum: c.Minimum}
}

// doubt records that an attempt ended and may have been written.
func (h *history) doubt(attempt uint32) {
	if !slices.Contains(h.doubts, attempt) {
		h.doubts = append(h.doubts, attempt)
	}
}

// resolve records that an attempt was not written, or was rolled back.
func (h *history) resolve(attempt uint32) {
	if i := slices.Index(h.doubts, attempt); i >= 0 {
		h.doubts = slices.Delete(h.doubts, i, i+1)
	}
}

// final is the answer to a put that is given up: the error sure if nothing can have been written.
func (h *history) final(parked bool, sure error) error {
	switch {
	case len(h.doubts) > 0 || !parked:
		return outcome.ErrInDoubt
	case h.refused != nil && sure == outcome.ErrNoLeader:
		return h.refused
	default:
		return sure
	}
}

// errTopicDeleted answers a put whose topic was deleted after Admit. Its text begins with that of its row in package
// outcome, because clients compare the beginning.
var errTopicDeleted = fmt.Errorf("%w: topic deleted, not stored", outcome.ErrTopicNotFound)

// answer is the result of a put. Its Answerer is called without a lock.
type answer struct {
	put    *put
	result api.PutResult
}

// putList is an intrusive list, ordered by position; a put is in at most one.
type putList struct {
	head, tail *put
	n          int
}

// insertOld adds p by its position. It searches from the head: a put that is parked again is probably among the oldest.
func (l *putList) insertOld(p *put) {
	var after *put
	for q := l.head; q != nil && q.position < p.position; q = q.next {
		after = q
	}
	l.insertAfter(after, p)
}

// insertNew adds p by its position. It searches from the tail: a new put is probably the last.
func (l *putList) insertNew(p *put) {
	after := l.tail
	for after != nil && after.position > p.position {
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
