package concurrency

import (
	"context"
	"sync"
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
