package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// putBudget bounds the bytes of unanswered puts. A waiting caller reserves nothing.
type putBudget struct {
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

// wait returns when there is room for a further put of that many bytes, or nothing is in use. Waiters are admitted in
// order.
func (b *putBudget) wait(ctx context.Context, done <-chan struct{}, bytes int64) error {
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
		return outcome.ErrExiting
	}
}

// take adds a put; false if that would exceed twice the limit. A put of any size is accepted while nothing is in use.
func (b *putBudget) take(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.used > 0 && b.mu.used+bytes > 2*b.limit {
		return false
	}
	b.mu.used += bytes
	return true
}

func (b *putBudget) give(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.used -= bytes
	b.admitLocked()
}

// admit admits further waiters, because admitted ones may have left without a put. It reports whether some still wait.
func (b *putBudget) admit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitLocked()
	return len(b.mu.waiters) > 0
}

func (b *putBudget) admitLocked() {
	var promised int64
	for len(b.mu.waiters) > 0 && b.fitsLocked(promised, b.mu.waiters[0].bytes) {
		promised += b.mu.waiters[0].bytes
		close(b.mu.waiters[0].ready)
		b.mu.waiters = b.mu.waiters[1:]
	}
}

// fitsLocked reports whether a body fits. A body larger than the whole budget fits when nothing else is in use.
func (b *putBudget) fitsLocked(promised, bytes int64) bool {
	in := b.mu.used + promised
	return in == 0 || in+bytes <= b.limit
}

func (b *putBudget) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.mu.waiters, w); i >= 0 {
		b.mu.waiters = slices.Delete(b.mu.waiters, i, i+1)
	}
}
