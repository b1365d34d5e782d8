package gateway

import (
	"cmp"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// queueWindow is how many positions a put may be ahead of the oldest one in flight. A leader recognises the last
	// 4096 requests of a producer. If an answer is lost while later puts flow, the repeat of its put must still be
	// among them.
	queueWindow = 2048
	// firstPause is the pause after the first attempt without success. It doubles up to maxPause, and starts again
	// at each change of the cluster.
	firstPause = 5 * time.Millisecond
)

// putQueue has the unanswered puts of one partition: it sends each to the leader, until it answers the put. The
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
		hint    Leadership // a leadership that a peer named; newer than this broker's metadata
		gone    bool       // removed from the gateway's table
	}
}

// attempt is one put on its way to a leader: the part of it that is used without the lock.
type attempt struct {
	put    *put
	n      uint32
	local  bool
	clone  bool // the header room is used: a copy is proposed
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

// route is where the puts go now; false: there is no leader that can be reached. A peer's hint counts while its epoch
// is higher than that of the metadata here.
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
func (q *putQueue) complete(p *put, n uint32, c replica.Completion) {
	a, final := q.settle(p, n, c)
	if !final {
		q.gateway.wake() // the keeper retries after the pause
		return
	}
	q.gateway.answer(a)
	q.pump() // there is room in the window again
}

func (q *putQueue) settle(p *put, n uint32, c replica.Completion) (answer, bool) {
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
		return q.finishLocked(p, api.PutResult{ID: api.MessageIDOf(q.id, c.First), Sequence: c.First, Duplicate: c.Outcome == replica.Repeated}), true
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
	case p.parked, p.attempt != n: // it was given up before, and was never written
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

// runDue gives up what is late, and sends what is due. It returns when it is to run again, if a put is parked.
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

// giveUp answers the selected puts: with the error sure if none of their attempts can have been written.
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
