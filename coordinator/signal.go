package coordinator

import "sync"

// signal wakes everybody who waits for "something changed". Its zero value is
// not usable; see newSignal.
type signal struct {
	mu struct {
		sync.Mutex
		next chan struct{}
	}
}

func newSignal() *signal {
	s := &signal{}
	s.mu.next = make(chan struct{})
	return s
}

// changed is closed at the next notify. Ask for it before looking at the state
// that may change, or a change in between is missed.
func (s *signal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.next
}

func (s *signal) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.mu.next)
	s.mu.next = make(chan struct{})
}
