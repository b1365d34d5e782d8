package concurrency

import (
	"context"
	"sync"
	"time"
)

// Group owns goroutines. Make it with NewGroup, end it with Close and Wait. It does not restart a
// goroutine, and reports no errors: each goroutine logs its own.
type Group struct {
	ctx    context.Context //nolint:containedctx // the life of the goroutines, cancelled by Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     struct {
		sync.Mutex
		closed bool
	}
}

// NewGroup makes a group without goroutines.
func NewGroup() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns a context that ends with Close.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs f in a goroutine, with a context that ends with Close. After Close it does nothing, and returns false.
func (g *Group) Go(f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.closed {
		g.done.Go(func() { f(g.ctx) })
	}
	return !g.mu.closed
}

// Close ends the context of all goroutines and prevents new ones. It returns false if it was called before.
func (g *Group) Close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return false
	}
	g.mu.closed = true
	g.cancel()
	return true
}

// Wait returns when all goroutines have ended. Call Close before.
func (g *Group) Wait() { g.done.Wait() }

// Each calls f for 0 to n−1, with at most atOnce calls in parallel, and returns when all have ended.
func Each(n, atOnce int, f func(i int)) {
	slots := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	defer calls.Wait()
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
}

// Every calls f once per period until ctx ends. A call that takes longer delays the next one.
func Every(ctx context.Context, period time.Duration, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
