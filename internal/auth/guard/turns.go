package guard

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// maxAsking bounds the concurrent queries to the auth service, and maxAskingOfAddress the queries for one address.
	maxAsking          = 64
	maxAskingOfAddress = 8
	// maxWaiting bounds the waiting logins of an address, and maxWaitingPaced those of an address whose queries are
	// paced, which is 5 s of queries.
	maxWaiting      = 1024
	maxWaitingPaced = 256
	// freeFailures is how many logins of an address the auth service may refuse before the queries for that address are paced.
	freeFailures = 5
	// pace is the time between two queries for an address whose logins were refused.
	pace = 20 * time.Millisecond
	// forgetAfter is how long after the last refusal the queries for an address are paced.
	forgetAfter = 5 * time.Minute
	// maxAddresses bounds the addresses whose refusals are remembered.
	maxAddresses = 16_384
)

// turns bounds the queries to the auth service about secrets that this broker does not know. The logins of one address
// wait in a queue of their own and get only a few of the concurrent queries, so that every address makes progress,
// however long one queue is. After some refusals the queries for an address are paced. A login waits, and is refused
// only if its queue is too long, so that an attacker at a shared address does not lock out the other clients there.
type turns struct {
	asking chan struct{} // one slot per running query
	mu     sync.Mutex
	of     map[string]*line // by network
}

type line struct {
	asking   chan struct{} // slots of the address; the channel keeps the waiting logins in order
	logins   int           // that wait, or run
	refusals int
	last     time.Time // of the refusals
	next     time.Time // when the next query may begin, if queries are paced
}

func newTurns() *turns {
	return &turns{asking: make(chan struct{}, maxAsking), of: map[string]*line{}}
}

func (l *line) paced(now time.Time) bool {
	return l.refusals >= freeFailures && now.Sub(l.last) <= forgetAfter
}

// take waits until the auth service may be queried for a client of this address. The caller must then call done, and
// pass whether the service refused the client. Errors are ErrTooManyFailures and the error of ctx.
func (t *turns) take(ctx context.Context, host string) (done func(refused bool), err error) {
	l := t.join(host)
	if l == nil {
		return nil, ErrTooManyFailures
	}
	if err = acquire(ctx, l.asking); err != nil {
		t.leave(l, false)
		return nil, err
	}
	if concurrency.Sleep(ctx, t.pause(l)); ctx.Err() == nil {
		err = acquire(ctx, t.asking)
	} else {
		err = ctx.Err()
	}
	if err != nil {
		<-l.asking
		t.leave(l, false)
		return nil, err
	}
	return func(refused bool) {
		<-t.asking
		<-l.asking
		t.leave(l, refused)
	}, nil
}

func acquire(ctx context.Context, seats chan struct{}) error {
	select {
	case seats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns the queue of an address; nil if it is too long.
func (t *turns) join(host string) *line {
	key, now := Network(host), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of[key]
	if l == nil {
		if len(t.of) >= maxAddresses {
			t.makeRoomLocked(now)
		}
		l = &line{asking: make(chan struct{}, maxAskingOfAddress)}
		t.of[key] = l
	}
	longest := maxWaiting
	if l.paced(now) {
		longest = maxWaitingPaced
	}
	if l.logins >= longest+maxAskingOfAddress {
		return nil
	}
	l.logins++
	return l
}

// pause is the time until the query of a login may begin.
func (t *turns) pause(l *line) time.Duration {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !l.paced(now) {
		return 0
	}
	at := l.next
	if at.Before(now) {
		at = now
	}
	l.next = at.Add(pace)
	return at.Sub(now)
}

func (t *turns) leave(l *line, refused bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l.logins--
	if !refused {
		return
	}
	if now.Sub(l.last) > forgetAfter {
		l.refusals = 0
	}
	l.refusals, l.last = l.refusals+1, now
}

// makeRoomLocked drops the empty queues that are not paced or, if that is not enough, all empty queues. So an attacker
// with more addresses than the limit is not paced by address.
func (t *turns) makeRoomLocked(now time.Time) {
	for _, all := range []bool{false, true} {
		for key, l := range t.of {
			if l.logins == 0 && (all || !l.paced(now)) {
				delete(t.of, key)
			}
		}
		if len(t.of) < maxAddresses {
			return
		}
	}
}

// Network is the unit of limits per address, for a host without a port; any other text is returned unchanged.
func Network(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	return limits.NetworkOf(ip).String()
}
