package gateway

import (
	"context"
	"sync"
)

// singleFlight lets one caller at a time create a topic; the others wait for it.
type singleFlight struct {
	mu struct {
		sync.Mutex
		running map[string]*flightCall
	}
}

type flightCall struct {
	over chan struct{}
	err  error // written before over is closed
}

// do calls f, or waits for a call under the same name that is running. If that call
// failed, its caller may have given up, so f is called then.
func (s *singleFlight) do(ctx context.Context, name string, f func() error) error {
	s.mu.Lock()
	if s.mu.running == nil {
		s.mu.running = make(map[string]*flightCall)
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
	mine := &flightCall{over: make(chan struct{})}
	s.mu.running[name] = mine
	s.mu.Unlock()
	mine.err = f()
	s.mu.Lock()
	delete(s.mu.running, name)
	s.mu.Unlock()
	close(mine.over)
	return mine.err
}
