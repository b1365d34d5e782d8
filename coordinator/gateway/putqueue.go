package gateway

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// queueWindow is how many places a put may be ahead of the oldest one under
	// way. A leader recognises the last 4096 requests of a producer. If an answer is
	// lost while later puts flow, the repeat of its put must still be among them.
	queueWindow = 2048
	// firstPause is the pause after the first attempt without success. It doubles up
	// to Options.Retry, and starts again at each change of the cluster.
	firstPause = 5 * time.Millisecond
)

// putQueue holds the puts of one partition that have no answer yet. The goroutines that
// publish to it and the keeper pump it, one at a time, so the order holds.
type putQueue struct {
	gateway *Gateway
	topic   string
	id      ident.Partition

	mu struct {
		sync.Mutex
		places  uint64  // given out
		parked  putList // waiting for an attempt
		out     putList // with an attempt under way
		byN     map[uint64]*put
		pumping bool
		// suspect: the last attempt found no leader that took it. One put is tried
		// at a time until a leader takes it.
		suspect bool
		pause   time.Duration
		nextTry time.Duration
		hint    Leadership // a leadership that a peer named; newer than this broker's metadata
		gone    bool       // removed from the gateway's table
	}
}

// attempt is one put to be launched: the part of it that the pump needs without the lock.
type attempt struct {
	put    *put
	n      uint32
	local  bool
	clone  bool // the header room is used: a copy is proposed
	target Leadership
}

// route is where the puts of a partition go now.
type route struct {
	ok     bool
	local  bool
	target Leadership
}

// add parks a new put at the end. It fails once the queue is retired.
func (q *putQueue) add(p *put) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.gone {
		return false
	}
	p.draft.Request.N = q.gateway.requests.Add(1) // under the lock: numbers rise along the queue
	p.parked = true
	q.mu.places++
	p.place = q.mu.places
	q.mu.parked.insertNew(p)
	q.mu.byN[p.draft.Request.N] = p
	return true
}

// pump launches parked puts, oldest first, as far as there is a leader and room.
func (q *putQueue) pump() {
	q.mu.Lock()
	if q.mu.pumping || q.mu.parked.n == 0 {
		q.mu.Unlock()
		return
	}
	q.mu.pumping = true
	q.mu.Unlock()
	for {
		a, ok := q.take(q.gateway.route(q))
		if !ok {
			return
		}
		q.gateway.launch(q, a)
	}
}

// take begins the next attempt, or ends the pump.
func (q *putQueue) take(r route) (attempt, bool) {
	now := q.gateway.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.mu.parked.head
	if p == nil || !r.ok || !q.roomLocked(p, now) {
		q.mu.pumping = false
		return attempt{}, false
	}
	q.mu.parked.remove(p)
	q.mu.out.insertNew(p)
	p.parked, p.local, p.current, p.sent = false, r.local, r.target, now
	p.attempt++
	a := attempt{put: p, n: p.attempt, local: r.local, clone: r.local && p.sealed, target: r.target}
	p.sealed = p.sealed || r.local
	return a, true
}

// roomLocked reports whether p, the oldest parked put, may be launched.
func (q *putQueue) roomLocked(p *put, now time.Duration) bool {
	oldest := q.mu.out.head
	switch {
	case q.mu.suspect:
		return oldest == nil && now >= q.mu.nextTry
	case oldest != nil:
		return p.place < oldest.place+queueWindow
	}
	return true
}

// settle takes the outcome of attempt n (0 = the present, local one) and
// returns the answer if the outcome is final.
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
		q.calmLocked()
		return q.finishLocked(p, api.PutResult{ID: api.MessageIDOf(q.id, c.First), Sequence: c.First, Duplicate: c.Outcome == replica.Repeated}), true
	case refuse:
		return q.finishLocked(p, api.PutResult{Err: refusal(c)}), true
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
	if p.done || p.parked || p.attempt != n {
		q.resolveLocked(p, n)
		return
	}
	q.parkLocked(p)
	q.suspectLocked(now)
}

// resolveLocked notes that attempt n, given up before, was never written.
func (q *putQueue) resolveLocked(p *put, n uint32) {
	if !p.done {
		p.resolve(n)
	}
}

// lostAttempts gives up the forwarded attempts whose target is gone. Their puts may
// have been written.
func (q *putQueue) lostAttempts(gone func(to Leadership) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := q.mu.out.tail; p != nil; {
		older := p.prev
		if !p.local && gone(p.current) {
			p.doubt(p.attempt)
			q.parkLocked(p)
		}
		p = older
	}
}

// unanswered gives up forwarded attempts that are older than Options.Resend: their
// answers may be lost. The leader recognises the repeats.
func (q *putQueue) unanswered(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for p := q.mu.out.tail; p != nil; {
		older := p.prev
		if !p.local && now-p.sent >= q.gateway.o.Resend {
			p.doubt(p.attempt)
			q.parkLocked(p)
		}
		p = older
	}
}

// expire removes the puts that are as old as the put limit.
func (q *putQueue) expire(now time.Duration) []answer {
	return q.giveUp(api.ErrNoLeader, func(p *put) bool { return now-p.born >= q.gateway.o.PutLimit })
}

// orphaned removes the puts without an attempt under way: their topic was deleted.
func (q *putQueue) orphaned() []answer {
	return q.giveUp(errTopicDeleted{}, func(p *put) bool { return p.parked })
}

// abandon removes all puts: the broker is stopping.
func (q *putQueue) abandon() []answer {
	return q.giveUp(api.ErrExiting, func(*put) bool { return true })
}

func (q *putQueue) giveUp(sure error, which func(*put) bool) []answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	var answers []answer
	for _, list := range []*putList{&q.mu.parked, &q.mu.out} {
		for p := list.head; p != nil; {
			next := p.next
			if which(p) {
				answers = append(answers, q.finishLocked(p, api.PutResult{Err: p.final(p.parked, sure)}))
			}
			p = next
		}
	}
	return answers
}

// changed ends the pause: the cluster has changed.
func (q *putQueue) changed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pause, q.mu.nextTry = 0, 0
}

// setHint keeps a leadership that a peer named. It counts while its epoch is higher than
// that of this broker's metadata.
func (q *putQueue) setHint(h Leadership) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h.Epoch > q.mu.hint.Epoch {
		q.mu.hint = h
		q.mu.pause, q.mu.nextTry = 0, 0
	}
}

func (q *putQueue) hint() Leadership {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.hint
}

// find returns the put with a request id; nil if there is none.
func (q *putQueue) find(r ident.RequestID) *put {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.mu.byN[r.N]; p != nil && p.draft.Request == r {
		return p
	}
	return nil
}

// due is when the queue may launch again, and whether any put is parked.
func (q *putQueue) due() (time.Duration, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.nextTry, q.mu.parked.n > 0
}

// retire marks an empty queue as removed.
func (q *putQueue) retire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.gone = q.mu.parked.n == 0 && q.mu.out.n == 0
	return q.mu.gone
}

func (q *putQueue) parkLocked(p *put) {
	q.mu.out.remove(p)
	p.parked = true
	q.mu.parked.insertOld(p)
}

func (q *putQueue) finishLocked(p *put, r api.PutResult) answer {
	if p.parked {
		q.mu.parked.remove(p)
	} else {
		q.mu.out.remove(p)
	}
	delete(q.mu.byN, p.draft.Request.N)
	p.done = true
	return answer{put: p, result: r}
}

func (q *putQueue) suspectLocked(now time.Duration) {
	q.mu.suspect = true
	q.mu.pause = min(max(2*q.mu.pause, firstPause), q.gateway.o.Retry)
	q.mu.nextTry = now + q.mu.pause
}

func (q *putQueue) calmLocked() { q.mu.suspect, q.mu.pause, q.mu.nextTry = false, 0, 0 }
