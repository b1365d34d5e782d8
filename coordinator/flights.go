package coordinator

import (
	"context"
	"sync"
)

// flights lets one caller at a time do something of a name; the others wait for
// it and then look for themselves.
type flights struct {
	mu struct {
		sync.Mutex
		busy map[string]chan struct{}
	}
}

func newFlights() *flights {
	f := &flights{}
	f.mu.busy = map[string]chan struct{}{}
	return f
}

// enter waits for its turn; leave must be called if err is nil.
func (f *flights) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		f.mu.Lock()
		other, busy := f.mu.busy[name]
		if !busy {
			mine := make(chan struct{})
			f.mu.busy[name] = mine
			f.mu.Unlock()
			return func() { f.leave(name, mine) }, nil
		}
		f.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *flights) leave(name string, mine chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.busy, name)
	close(mine)
}
