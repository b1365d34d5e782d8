package ratelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limit is a publish rate per second; 0 = no limit.
type Limit struct{ Messages, Bytes int64 }

// maxBurst bounds a bucket, so that it fits an int on every platform.
const maxBurst = 1 << 30

// limiter is the pair of buckets of one limit.
type limiter struct {
	limit           Limit
	messages, bytes *rate.Limiter // nil = no limit
}

func newLimiter(l Limit) *limiter { return &limiter{l, bucket(l.Messages), bucket(l.Bytes)} }

// bucket holds one second's worth.
func bucket(perSecond int64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), int(min(perSecond, maxBurst)))
}

func (l *limiter) allow(now time.Time, messages, bytes int) bool {
	undo, ok := take(l.messages, now, messages)
	if !ok {
		return false
	}
	if _, ok = take(l.bytes, now, bytes); !ok {
		undo()
	}
	return ok
}

// take takes n tokens if they are there, and leaves a debt if n is more than the bucket
// holds. undo gives the tokens back.
func take(b *rate.Limiter, now time.Time, n int) (undo func(), ok bool) {
	if b == nil || n <= 0 {
		return func() {}, true
	}
	burst := b.Burst()
	first := b.ReserveN(now, min(n, burst))
	if first.DelayFrom(now) > 0 {
		first.CancelAt(now)
		return nil, false
	}
	taken := []*rate.Reservation{first}
	for n -= burst; n > 0; n -= burst {
		taken = append(taken, b.ReserveN(now, min(n, burst)))
	}
	return func() {
		for i := len(taken) - 1; i >= 0; i-- {
			taken[i].CancelAt(now)
		}
	}, true
}

// maxEntries bounds a Set.
const maxEntries = 1 << 16

// Set has the buckets of many users or topics. The zero Set is ready for use.
type Set[K comparable] struct {
	mu sync.RWMutex
	of map[K]*limiter
}

// Allow reports whether a put may pass now under the limit of its key, and takes its tokens
// then. A key whose limit has changed starts with full buckets.
func (s *Set[K]) Allow(key K, l Limit, messages, bytes int) bool {
	if l == (Limit{}) {
		return true
	}
	s.mu.RLock()
	found := s.of[key]
	s.mu.RUnlock()
	if found == nil || found.limit != l {
		found = s.make(key, l)
	}
	return found.allow(time.Now(), messages, bytes)
}

func (s *Set[K]) make(key K, l Limit) *limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.of[key]; found != nil && found.limit == l {
		return found
	}
	if s.of == nil || len(s.of) >= maxEntries {
		s.of = map[K]*limiter{}
	}
	made := newLimiter(l)
	s.of[key] = made
	return made
}
