package limits

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is a publish rate per second at one broker; 0 = no limit.
type Rate struct{ Messages, Bytes int64 }

// maxBurst bounds a bucket, so that it fits an int on every platform.
const maxBurst = 1 << 30

type limiter struct {
	limit           Rate
	messages, bytes *rate.Limiter // nil = no limit
}

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

// take takes n tokens if they are available. If n exceeds the size of the bucket, it takes them from a full bucket and
// leaves a debt. undo returns the tokens.
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

// Rates limits the publish rates of users or topics. A rate has two token buckets, each with one second's worth and at
// least one message. A put takes its tokens from both, or none from either. A put that is larger than a bucket passes
// when the bucket is full, and leaves a debt: no put is refused forever, and the mean rate is kept. The map is bounded;
// if it overflows, all buckets start full again. The zero value is ready for use, and any goroutine may use it.
type Rates[K comparable] struct {
	mu sync.RWMutex
	of map[K]*limiter
}

// Allow reports whether a put may pass now under the limit of its key, and if so takes its tokens. A key whose limit
// has changed starts with full buckets.
func (s *Rates[K]) Allow(key K, l Rate, messages, bytes int) bool {
	if l == (Rate{}) {
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

func (s *Rates[K]) make(key K, l Rate) *limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.of[key]; found != nil && found.limit == l {
		return found
	}
	if s.of == nil || len(s.of) >= maxEntries {
		s.of = map[K]*limiter{}
	}
	made := &limiter{l, bucket(l.Messages), bucket(l.Bytes)}
	s.of[key] = made
	return made
}
