// Package concurrency has small tools for goroutines: signals, sleeps that end with their context,
// groups that are waited for, counts of operations in flight, a stopwatch for stalls, writes that do not
// block. When to wait, retry or give up is the caller's choice.
//
// # Invariants
//
//  1. No goroutine and no timer outlives the Group or the context that it belongs to.
//  2. Notify never blocks. A change between the read of the state and the wait for the next change is not lost if the
//     goroutine took the channel before its read (Signal), or is the only receiver (Edge).
package concurrency

import (
	"context"
	"sync"
	"time"
)

// Signal wakes all goroutines that wait for the next change. It carries no value: a goroutine that
// wakes up reads the state itself. Make it with NewSignal. Any goroutine may use it.
type Signal struct {
	mu struct {
		sync.Mutex
		next chan struct{}
	}
	closed chan struct{}
	once   sync.Once
}

// NewSignal makes a signal.
func NewSignal() *Signal {
	s := &Signal{closed: make(chan struct{})}
	s.mu.next = make(chan struct{})
	return s
}

// Changed returns a channel that the next Notify closes. Call it before reading the state that
// may change; otherwise a change in between is lost.
func (s *Signal) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.next
}

// Notify wakes all waiting goroutines.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.mu.next)
	s.mu.next = make(chan struct{})
}

// Await waits until ok returns true; it calls ok after each change. The error is that of ctx,
// or context.Canceled after Close.
func (s *Signal) Await(ctx context.Context, ok func() bool) error {
	for {
		changed := s.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return context.Canceled
		}
	}
}

// Close ends every current and later Await. It may be called again.
func (s *Signal) Close() { s.once.Do(func() { close(s.closed) }) }

// Edge wakes one receiving goroutine. Notifications before the next receive count as one.
type Edge chan struct{}

// NewEdge makes an edge.
func NewEdge() Edge { return make(Edge, 1) }

// Notify wakes the receiver, now or at its next receive.
func (e Edge) Notify() {
	select {
	case e <- struct{}{}:
	default:
	}
}

// Sleep sleeps for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepUntil(ctx, nil, d) }

// SleepUntil sleeps for d, or until changed is closed or sends a value. It returns false if ctx ends first.
func SleepUntil(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}
