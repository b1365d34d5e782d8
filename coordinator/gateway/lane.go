package gateway

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

const (
	// laneWindow is how many places a put may be ahead of the oldest one under
	// way. A leader recognises the last 4096 requests of a producer; an answer
	// that is lost while others flow must still find its put among them when it
	// is tried again.
	laneWindow = 2048
	// firstPause is the pause after the first fruitless attempt; it doubles up
	// to Options.Retry and starts again when something changes.
	firstPause = 5 * time.Millisecond
)

// lane is the puts of one partition that have no answer yet. Whoever publishes
// or wakes it pumps it; one goroutine at a time does, so the order holds.
type lane struct {
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
		// suspect: the last attempt found no willing leader, so one put goes
		// ahead alone until it is taken.
		suspect bool
		pause   time.Duration
		nextTry time.Duration
		hint    Leadership // what a peer says that is newer than our metadata
		gone    bool       // taken out of the gateway's table
	}
}

// attempt is one put to be launched: what the pump needs without the lock.
type attempt struct {
	put    *put
	n      uint32
	local  bool
	clone  bool // the header room is taken: propose a copy
	target Leadership
}

// route says where puts of a partition go now.
type route struct {
	ok     bool
	local  bool
	target Leadership
}

// add parks a new put at the end. It fails when the lane has been taken away.
func (l *lane) add(p *put) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.gone {
		return false
	}
	p.draft.Request.N = l.gateway.requests.Add(1) // under the lock: numbers rise along the lane
	p.parked = true
	l.mu.places++
	p.place = l.mu.places
	l.mu.parked.insertNew(p)
	l.mu.byN[p.draft.Request.N] = p
	return true
}

// pump launches parked puts, oldest first, as far as there is a leader and room.
func (l *lane) pump() {
	l.mu.Lock()
	if l.mu.pumping || l.mu.parked.n == 0 {
		l.mu.Unlock()
		return
	}
	l.mu.pumping = true
	l.mu.Unlock()
	for {
		a, ok := l.take(l.gateway.route(l))
		if !ok {
			return
		}
		l.gateway.launch(l, a)
	}
}

// take begins the next attempt, or ends the pump.
func (l *lane) take(r route) (attempt, bool) {
	now := l.gateway.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.mu.parked.head
	if p == nil || !r.ok || !l.roomLocked(p, now) {
		l.mu.pumping = false
		return attempt{}, false
	}
	l.mu.parked.remove(p)
	l.mu.out.insertNew(p)
	p.parked, p.local, p.current, p.sent = false, r.local, r.target, now
	p.attempt++
	a := attempt{put: p, n: p.attempt, local: r.local, clone: r.local && p.sealed, target: r.target}
	p.sealed = p.sealed || r.local
	return a, true
}

// roomLocked reports whether p, the oldest parked put, may be launched.
func (l *lane) roomLocked(p *put, now time.Duration) bool {
	oldest := l.mu.out.head
	switch {
	case l.mu.suspect:
		return oldest == nil && now >= l.mu.nextTry
	case oldest != nil:
		return p.place < oldest.place+laneWindow
	}
	return true
}

// settle takes the outcome of attempt n (0 = the present, local one) and
// returns the answer if it is the last word.
func (l *lane) settle(p *put, n uint32, o replica.Outcome, first ident.Sequence) (answer, bool) {
	now := l.gateway.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.done {
		return answer{}, false
	}
	if n == 0 {
		n = p.attempt
	}
	switch p.judge(n, p.parked, o, now-p.born >= l.gateway.o.Hold) {
	case committed:
		l.calmLocked()
		return l.finishLocked(p, edge.PutResult{ID: nsqd.ID(l.id, first), Sequence: first}), true
	case notEnough:
		return l.finishLocked(p, edge.PutResult{Err: edge.ErrNotEnough}), true
	case takenBack:
		return l.finishLocked(p, edge.PutResult{Err: edge.ErrRolledBack}), true
	case topicFull:
		return l.finishLocked(p, edge.PutResult{Err: edge.ErrTopicFull}), true
	case diskFull:
		return l.finishLocked(p, edge.PutResult{Err: edge.ErrDiskFull}), true
	case tryAgain:
		l.parkLocked(p)
		l.suspectLocked(now)
	}
	return answer{}, false
}

// unsent takes back an attempt whose frame did not leave.
func (l *lane) unsent(p *put, n uint32) {
	now := l.gateway.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.done || p.parked || p.attempt != n {
		l.resolveLocked(p, n)
		return
	}
	l.parkLocked(p)
	l.suspectLocked(now)
}

// resolveLocked notes that attempt n, given up before, was never written.
func (l *lane) resolveLocked(p *put, n uint32) {
	if !p.done {
		p.resolve(n)
	}
}

// lostAttempts gives up the forwarded attempts whose target is gone: they may
// have been written.
func (l *lane) lostAttempts(gone func(to Leadership) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := l.mu.out.tail; p != nil; {
		older := p.prev
		if !p.local && gone(p.current) {
			p.doubt(p.attempt)
			l.parkLocked(p)
		}
		p = older
	}
}

// unanswered gives up forwarded attempts that are older than Options.Resend:
// the answer may be lost. The leader recognises the repeat.
func (l *lane) unanswered(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := l.mu.out.tail; p != nil; {
		older := p.prev
		if !p.local && now-p.sent >= l.gateway.o.Resend {
			p.doubt(p.attempt)
			l.parkLocked(p)
		}
		p = older
	}
}

// expire takes out the puts that have waited for the put limit.
func (l *lane) expire(now time.Duration) []answer {
	return l.giveUp(edge.ErrNoLeader, func(p *put) bool { return now-p.born >= l.gateway.o.PutLimit })
}

// abandon takes out all puts: the broker is stopping.
func (l *lane) abandon() []answer {
	return l.giveUp(edge.ErrExiting, func(*put) bool { return true })
}

func (l *lane) giveUp(sure error, which func(*put) bool) []answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	var answers []answer
	for _, list := range []*putList{&l.mu.parked, &l.mu.out} {
		for p := list.head; p != nil; {
			next := p.next
			if which(p) {
				answers = append(answers, l.finishLocked(p, edge.PutResult{Err: p.final(p.parked, sure)}))
			}
			p = next
		}
	}
	return answers
}

// changed forgets the pause: something in the cluster is different now.
func (l *lane) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.pause, l.mu.nextTry = 0, 0
}

// hint keeps a peer's idea of the leader; it counts while it is newer than ours.
func (l *lane) setHint(h Leadership) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.Epoch > l.mu.hint.Epoch {
		l.mu.hint = h
		l.mu.pause, l.mu.nextTry = 0, 0
	}
}

func (l *lane) hint() Leadership {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.hint
}

// find returns the put that a peer's answer is about.
func (l *lane) find(r ident.RequestID) *put {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.mu.byN[r.N]; p != nil && p.draft.Request == r {
		return p
	}
	return nil
}

// due is when the keeper should look at the lane again, and whether it must.
func (l *lane) due() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.nextTry, l.mu.parked.n > 0
}

// retire marks an empty lane as taken away.
func (l *lane) retire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.gone = l.mu.parked.n == 0 && l.mu.out.n == 0
	return l.mu.gone
}

func (l *lane) parkLocked(p *put) {
	l.mu.out.remove(p)
	p.parked = true
	l.mu.parked.insertOld(p)
}

func (l *lane) finishLocked(p *put, r edge.PutResult) answer {
	if p.parked {
		l.mu.parked.remove(p)
	} else {
		l.mu.out.remove(p)
	}
	delete(l.mu.byN, p.draft.Request.N)
	p.done = true
	return answer{put: p, result: r}
}

func (l *lane) suspectLocked(now time.Duration) {
	l.mu.suspect = true
	l.mu.pause = min(max(2*l.mu.pause, firstPause), l.gateway.o.Retry)
	l.mu.nextTry = now + l.mu.pause
}

func (l *lane) calmLocked() { l.mu.suspect, l.mu.pause, l.mu.nextTry = false, 0, 0 }
