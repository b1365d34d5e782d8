package coordinator

import (
	"context"
	"sync"
)

// flights lets one caller at a time do something of a name; the others come after
// it, one by one, and look for themselves.
type flights struct {
	mu   sync.Mutex
	busy map[string]*flight
}

type flight struct {
	turn    chan struct{} // capacity 1: full while somebody has it
	callers int           // that have it or wait for it
}

func newFlights() *flights { return &flights{busy: map[string]*flight{}} }

// enter waits for its turn; leave must be called if err is nil.
func (f *flights) enter(ctx context.Context, name string) (leave func(), err error) {
	f.mu.Lock()
	mine := f.busy[name]
	if mine == nil {
		mine = &flight{turn: make(chan struct{}, 1)}
		f.busy[name] = mine
	}
	mine.callers++
	f.mu.Unlock()
	select {
	case mine.turn <- struct{}{}:
		return func() { <-mine.turn; f.forget(name, mine) }, nil
	case <-ctx.Done():
		f.forget(name, mine)
		return nil, ctx.Err()
	}
}

func (f *flights) forget(name string, mine *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mine.callers--; mine.callers == 0 {
		delete(f.busy, name)
	}
}
