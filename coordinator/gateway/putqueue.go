package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// queueWindow is how many positions a put may be ahead of the oldest put in flight. A leader recognises the last
	// 4096 requests of a producer. If an answer is lost while later puts continue, the repeat must still be among
	// those.
	queueWindow = 2048
	// firstPause is the pause after the first unsuccessful attempt. It doubles up to maxPause, and starts again at each
	// change of the cluster.
	firstPause = 5 * time.Millisecond
)

// putQueue holds the unanswered puts of one partition. It sends each put to the leader until the put is answered. The
// goroutines that publish to it and the keeper pump it, one at a time, so the order is kept.
type putQueue struct {
	gateway *Gateway
	topic   string
	id      ident.Partition

	mu struct {
		sync.Mutex
		position uint64  // of the last put
		parked   putList // waiting for an attempt
		inFlight putList // with an attempt in progress
		byN      map[uint64]*put
		pumping  bool
		// suspect: no leader accepted the last attempt. One put is tried at a time until a leader accepts it.
		suspect bool
		pause   time.Duration
		nextTry time.Duration
		hint    Leadership // a leadership reported by a peer; newer than this broker's metadata
		gone    bool       // removed from the gateway's table
	}
}

// attempt is one put on its way to a leader: the fields that are used without the lock.
type attempt struct {
	put    *put
	n      uint32
	local  bool
	clone  bool // the header room is in use, so a copy is proposed
	target Leadership
}

// add appends a new put. It fails once the queue is retired.
func (q *putQueue) add(p *put) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.gone {
		return false
	}
	p.draft.Request.N = q.gateway.requests.Add(1) // under the lock: numbers rise along the queue
	p.parked = true
	q.mu.position++
	p.position = q.mu.position
	q.mu.parked.insertNew(p)
	q.mu.byN[p.draft.Request.N] = p
	return true
}

// pump sends parked puts, oldest first, as far as there is a leader and room.
func (q *putQueue) pump() {
	q.mu.Lock()
	if q.mu.pumping || q.mu.parked.n == 0 {
		q.mu.Unlock()
		return
	}
	q.mu.pumping = true
	q.mu.Unlock()
	for {
		to, local, ok := q.route()
		a, ok := q.next(to, local, ok)
		if !ok {
			return
		}
		if !local {
			q.gateway.out.forward(a)
			continue
		}
		d := a.put.draft
		if a.clone {
			d = d.Clone()
		}
		q.gateway.core.Propose(q.id, d, a.put)
	}
}

// route is the current destination of the puts; false: no leader can be reached. A peer's hint is used while its epoch
// is higher than the epoch in this broker's metadata.
func (q *putQueue) route() (to Leadership, local, ok bool) {
	g := q.gateway
	if g.core.Leads(q.id) {
		return to, true, true
	}
	to, ok = g.core.Leader(q.id)
	q.mu.Lock()
	hint := q.mu.hint
	q.mu.Unlock()
	if hint.Epoch > to.Epoch {
		to, ok = hint, true
	}
	return to, false, ok && to.Node != g.core.Self() && g.transport.Up(to.Node)
}

// next begins the next attempt, or ends the pump.
func (q *putQueue) next(to Leadership, local, reachable bool) (attempt, bool) {
	now := q.gateway.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.mu.parked.head
	if p == nil || !reachable || !q.roomLocked(p, now) {
		q.mu.pumping = false
		return attempt{}, false
	}
	q.mu.parked.remove(p)
	q.mu.inFlight.insertNew(p)
	p.parked, p.local, p.current, p.sent = false, local, to, now
	p.attempt++
	a := attempt{put: p, n: p.attempt, local: local, clone: local && p.sealed, target: to}
	p.sealed = p.sealed || local
	return a, true
}

// roomLocked reports whether p, the oldest parked put, may be sent.
func (q *putQueue) roomLocked(p *put, now time.Duration) bool {
	oldest := q.mu.inFlight.head
	switch {
	case q.mu.suspect:
		return oldest == nil && now >= q.mu.nextTry
	case oldest != nil:
		return p.position < oldest.position+queueWindow
	}
	return true
}

// complete takes the outcome of attempt n of a put (0: the present, local one), and answers the put if the outcome is
// final.
func (q *putQueue) complete(p *put, n uint32, c outcome.Completion) {
	a, final := q.settle(p, n, c)
	if !final {
		q.gateway.wake() // the keeper retries after the pause
		return
	}
	q.gateway.answer(a)
	q.pump() // there is room in the window again
}

func (q *putQueue) settle(p *put, n uint32, c outcome.Completion) (answer, bool) {
	now := q.gateway.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.done {
		return answer{}, false
	}
	if n == 0 {
		n = p.attempt
	}
	switch p.judge(n, p.parked, c, now-p.born >= q.gateway.o.Hold) {
	case committed:
		q.mu.suspect, q.mu.pause, q.mu.nextTry = false, 0, 0
		return q.finishLocked(p, api.PutResult{ID: api.MessageIDOf(q.id, c.First), Sequence: c.First, Duplicate: c.Outcome == outcome.Repeated}), true
	case refuse:
		return q.finishLocked(p, api.PutResult{Err: cmp.Or(shortage(c), c.Outcome.Row().Err)}), true
	case tryAgain:
		q.parkLocked(p)
		q.suspectLocked(now)
	}
	return answer{}, false
}

// unsent parks the put of an attempt whose frame was not sent.
func (q *putQueue) unsent(p *put, n uint32) {
	now := q.gateway.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case p.done:
	case p.parked, p.attempt != n: // the attempt was given up earlier, but turns out not to have been written
		p.resolve(n)
	default:
		q.parkLocked(p)
		q.suspectLocked(now)
	}
}

// lostAttempts gives up the selected forwarded attempts, which may have been written.
func (q *putQueue) lostAttempts(which func(*put) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := q.mu.inFlight.tail; p != nil; {
		older := p.prev
		if !p.local && which(p) {
			p.doubt(p.attempt)
			q.parkLocked(p)
		}
		p = older
	}
}

// runDue gives up puts that are late, and sends those that are due. If a put is parked, it returns when to run next.
func (q *putQueue) runDue(now time.Duration) (at time.Duration, parked bool) {
	g := q.gateway
	// An answer may be lost. The leader recognises the repeat.
	q.lostAttempts(func(p *put) bool { return now-p.sent >= resendAfter })
	q.giveUp(outcome.ErrNoLeader, func(p *put) bool { return now-p.born >= g.o.PutLimit })
	if g.deleted(q) {
		q.giveUp(errTopicDeleted, func(p *put) bool { return p.parked })
		g.drop(q)
	}
	q.pump()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.nextTry, q.mu.parked.n > 0
}

// giveUp answers the selected puts: with the error sure if no attempt can have been written, otherwise with in doubt.
func (q *putQueue) giveUp(sure error, which func(*put) bool) {
	var answers []answer
	q.mu.Lock()
	for _, list := range []*putList{&q.mu.parked, &q.mu.inFlight} {
		for p := list.head; p != nil; {
			next := p.next
			if which(p) {
				answers = append(answers, q.finishLocked(p, api.PutResult{Err: p.final(p.parked, sure)}))
			}
			p = next
		}
	}
	q.mu.Unlock()
	for _, a := range answers {
		q.gateway.answer(a)
	}
}

func (q *putQueue) retryNow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pause, q.mu.nextTry = 0, 0
}

func (q *putQueue) setHint(h Leadership) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h.Epoch > q.mu.hint.Epoch {
		q.mu.hint = h
		q.mu.pause, q.mu.nextTry = 0, 0
	}
}

func (q *putQueue) find(r ident.RequestID) *put {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.mu.byN[r.N]; p != nil && p.draft.Request == r {
		return p
	}
	return nil
}

func (q *putQueue) retire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.gone = q.mu.parked.n == 0 && q.mu.inFlight.n == 0
	return q.mu.gone
}

func (q *putQueue) parkLocked(p *put) {
	q.mu.inFlight.remove(p)
	p.parked = true
	q.mu.parked.insertOld(p)
}

func (q *putQueue) finishLocked(p *put, r api.PutResult) answer {
	if p.parked {
		q.mu.parked.remove(p)
	} else {
		q.mu.inFlight.remove(p)
	}
	delete(q.mu.byN, p.draft.Request.N)
	p.done = true
	return answer{put: p, result: r}
}

func (q *putQueue) suspectLocked(now time.Duration) {
	q.mu.suspect = true
	q.mu.pause = min(max(2*q.mu.pause, firstPause), maxPause)
	q.mu.nextTry = now + q.mu.pause
}

// put is one unanswered put. The fields below the empty line are guarded by the put queue's lock. The others never
// change after Publish.
type put struct {
	queue       *putQueue
	draft       queue.Draft
	answerer    api.Answerer
	born        time.Duration
	uncontended bool // no other put was unanswered here when it arrived

	next, prev *put
	position   uint64 // in the queue, counted over all puts ever added
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
func (p *put) Complete(c outcome.Completion) { p.queue.complete(p, 0, c) }

// history is the record of a put's attempts: a plain value that uses no clock and no lock.
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
func (h *history) judge(attempt uint32, parked bool, c outcome.Completion, held bool) verdict {
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
func shortage(c outcome.Completion) error {
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

// final is the answer to a put that is given up: the error sure if no attempt can have been written, otherwise in
// doubt.
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

// errTopicDeleted answers a put whose topic was deleted after Admit. Its text begins with the text of its row in
// package outcome, because clients compare the beginning.
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
