package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// budget bounds the bytes of puts without an answer. Waiting reserves nothing.
type budget struct {
	limit int64
	mu    struct {
		sync.Mutex
		used    int64
		waiters []*waiter // oldest first
	}
}

type waiter struct {
	bytes int64
	ready chan struct{}
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// wait returns when there is room for bytes more, or nothing is in use. Waiters
// are let in first come, first served.
func (b *budget) wait(ctx context.Context, done <-chan struct{}, bytes int64) error {
	b.mu.Lock()
	if len(b.mu.waiters) == 0 && b.fitsLocked(0, bytes) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{bytes: bytes, ready: make(chan struct{})}
	b.mu.waiters = append(b.mu.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		b.leave(w)
		return ctx.Err()
	case <-done:
		b.leave(w)
		return edge.ErrExiting
	}
}

// take counts a put in; false above twice the limit.
func (b *budget) take(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.used > 0 && b.mu.used+bytes > 2*b.limit {
		return false
	}
	b.mu.used += bytes
	return true
}

// give counts a put out and lets waiters in.
func (b *budget) give(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.used -= bytes
	b.admitLocked()
}

// nudge lets waiters in again: those let in before may have gone away without
// a put. It reports whether some still wait.
func (b *budget) nudge() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitLocked()
	return len(b.mu.waiters) > 0
}

func (b *budget) admitLocked() {
	var promised int64
	for len(b.mu.waiters) > 0 && b.fitsLocked(promised, b.mu.waiters[0].bytes) {
		promised += b.mu.waiters[0].bytes
		close(b.mu.waiters[0].ready)
		b.mu.waiters = b.mu.waiters[1:]
	}
}

// fitsLocked: a body larger than the whole budget passes when it is alone.
func (b *budget) fitsLocked(promised, bytes int64) bool {
	in := b.mu.used + promised
	return in == 0 || in+bytes <= b.limit
}

func (b *budget) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.mu.waiters, w); i >= 0 {
		b.mu.waiters = slices.Delete(b.mu.waiters, i, i+1)
	}
}

// flights lets one caller at a time create a topic; the others wait for it.
type flights struct {
	mu struct {
		sync.Mutex
		running map[string]*flight
	}
}

type flight struct {
	over chan struct{}
	err  error // written before over is closed
}

// do calls f, or waits for a call under the same name that is already running.
// If that one failed, its caller may just have given up: f is called then.
func (s *flights) do(ctx context.Context, name string, f func() error) error {
	s.mu.Lock()
	if s.mu.running == nil {
		s.mu.running = make(map[string]*flight)
	}
	if other := s.mu.running[name]; other != nil {
		s.mu.Unlock()
		select {
		case <-other.over:
			if other.err == nil {
				return nil
			}
			return f()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	mine := &flight{over: make(chan struct{})}
	s.mu.running[name] = mine
	s.mu.Unlock()
	mine.err = f()
	s.mu.Lock()
	delete(s.mu.running, name)
	s.mu.Unlock()
	close(mine.over)
	return mine.err
}
